// Enqueues a job and waits for its result:  tenure_example_producer [host:port] [name]
#include <iostream>

#include "tenure/client.h"

int main(int argc, char** argv) {
  using namespace tenure::client;
  ClientOptions options;
  if (argc > 1) options.targets = {argv[1]};
  absl::StatusOr<Client> client = Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 2;
  }

  JobSpec spec{.queue = "greetings", .kind = "greet"};
  spec.payload = Payload::Text(argc > 2 ? argv[2] : "world");
  spec.idempotency_key = NewRequestId();  // So that a lost reply is repeated without making the job twice.
  absl::StatusOr<Enqueued> enqueued = client->Enqueue(spec);
  if (!enqueued.ok()) {
    std::cerr << enqueued.status() << "\n";
    return 1;
  }
  std::cout << "enqueued " << enqueued->job_id << "\n";

  absl::StatusOr<Job> job = client->WaitForOutcome(enqueued->job_id, {.timeout = std::chrono::minutes(1), .stop = {}});
  if (!job.ok()) {
    std::cerr << job.status() << "\n";
    return 1;
  }
  std::cout << ToString(job->state) << ": " << (job->result ? job->result->data : "no result") << "\n";
  return job->state == JobState::kCompleted ? 0 : 1;
}
