// Works the queue "greetings" until SIGINT or SIGTERM:  tenure_example_worker [host:port]
#include <iostream>

#include "tenure/worker_pool.h"

int main(int argc, char** argv) {
  using namespace tenure::client;
  ClientOptions options;
  if (argc > 1) options.targets = {argv[1]};
  absl::StatusOr<Client> client = Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 2;
  }

  WorkerPoolOptions pool_options;
  pool_options.queues = {{"greetings"}};
  pool_options.slots = 8;
  WorkerPool pool(*client, pool_options);
  pool.Handle("greet", [](JobContext& job) -> Outcome {
    if (job.payload().data.empty()) throw Discard{"nobody to greet"};
    job.Log(LogLevel::kInfo, "greeting " + job.payload().data);
    return Complete{Payload::Text("Hello, " + job.payload().data + "!")};
  });

  const absl::Status status = pool.RunUntilSignal();
  std::cerr << pool.Stats().completed << " jobs completed; " << status << "\n";
  return status.ok() ? 0 : 1;
}
