// A small user of the installed client library. Without arguments it only proves that it links and that options are
// checked.
#include <iostream>

#include "tenure/client.h"
#include "tenure/worker_pool.h"

int main() {
  using namespace tenure::client;
  absl::StatusOr<Client> client = Client::Connect({.targets = {"127.0.0.1:1"}});
  if (!client.ok()) return 1;
  WorkerPoolOptions options;
  options.queues = {{"mail"}};
  options.slots = 0;  // Refused, by name.
  WorkerPool pool(*client, options);
  pool.Handle("send", [](JobContext& job) -> Outcome { return Complete{job.payload()}; });
  const absl::Status status = pool.Run({});
  std::cout << status << "\n";
  return ErrorMetadata(status)["field"] == "slots" ? 0 : 1;
}
