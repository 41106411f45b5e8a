// Compression of what is written for targets, by zlib. Layer: background/targets, the only place that knows zlib. Not
// thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tenure::background::targets {

// Gathers text as one gzip member: the same bytes for the same text always (no time, no name in its head).
class Gzip {
 public:
  Gzip();
  ~Gzip();
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  void Append(std::string_view text);
  // Compressed so far, about.
  size_t size() const;
  // Ends it. Append no more.
  std::string Finish();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::background::targets
