// A gate between a store and its database, for what a network and a database server do to each other's callers: it is a
// TCP port that passes everything on to the database, until the test closes it. Layer: tests. Thread-safe. Works with a
// database on a unix socket and on TCP.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "server/embedded/process.h"

namespace tenure::testing {

class Gate {
 public:
  // Opened, in front of the server that `url` names.
  explicit Gate(const std::string& url);
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // `url`'s database through the gate.
  const std::string& url() const { return url_; }

  // All connections are closed, new ones are closed at once: the server went down.
  void Cut() { Set(State::kCut); }
  // Nothing goes through in either direction and nobody is told: a pulled cable, a server that is stopped. What was
  // sent meanwhile arrives when the gate opens.
  void Stall() { Set(State::kStalled); }
  void Open() { Set(State::kOpen); }

 private:
  enum class State : char { kOpen = 'o', kCut = 'c', kStalled = 's', kGone = 'g' };
  struct Pair;
  // Returns once the gate is in that state.
  void Set(State state);
  void Run();
  int Connect() const;

  std::string url_;
  std::string host_, port_;
  embedded::UniqueFd listener_;
  embedded::UniqueFd orders_[2];   // The test writes a state ...
  embedded::UniqueFd answers_[2];  // ... and reads that it has been taken.
  std::thread thread_;
};

}  // namespace tenure::testing
