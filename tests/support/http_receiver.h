// An HTTP server that records what it is sent and answers by the test's script: a webhook's receiver, an SQS, an object
// store. Layer: tests. Thread-safe; the script runs on a thread of its own for each connection.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tenure::testing {

struct Received {
  std::string method, target;
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string body;
};

struct Answer {
  int status = 200;
  std::string body;
  std::vector<std::string> headers;  // "Name: value".
};

class HttpReceiver {
 public:
  using Script = std::function<Answer(const Received&)>;

  // On a free port of 127.0.0.1.
  explicit HttpReceiver(Script script = [](const Received&) { return Answer{}; });
  ~HttpReceiver();
  HttpReceiver(const HttpReceiver&) = delete;
  HttpReceiver& operator=(const HttpReceiver&) = delete;

  int port() const { return port_; }
  std::string url(const std::string& path = "/") const;

  // All requests so far, whatever was answered.
  std::vector<Received> requests();
  // Waits until `condition` holds; it is called with the lock held, after each request. False after 30 s.
  [[nodiscard]] bool Await(const std::function<bool(const std::vector<Received>&)>& condition);
  // Another script from now on.
  void SetScript(Script script);
  // Requests from now on get no answer until Resume.
  void Hold();
  void Resume();

 private:
  void Accept();
  void Serve(int fd);

  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Script script_;  // Guarded by mutex_, as all of these.
  std::vector<Received> requests_;
  std::vector<std::thread> serving_;
  std::set<int> open_;
  bool held_ = false;
  bool stopping_ = false;
  std::thread accepting_;  // Last: it uses the rest.
};

}  // namespace tenure::testing
