// Gzip: see the header. Layer: background/targets.
#include "server/background/targets/gzip.h"

#include <zlib.h>

#include <cstdlib>

namespace tenure::background::targets {
namespace {

constexpr int kLevel = 6;
constexpr int kGzipWindow = 15 + 16;  // The largest window, with a gzip header.
constexpr int kMemory = 8;

}  // namespace

struct Gzip::Impl {
  z_stream stream{};
  std::string out;

  void Run(std::string_view text, int flush) {
    // zlib reads only; its interface is older than const.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    char chunk[1 << 15];
    do {
      stream.next_out = reinterpret_cast<Bytef*>(chunk);
      stream.avail_out = sizeof chunk;
      deflate(&stream, flush);
      out.append(chunk, sizeof chunk - stream.avail_out);
    } while (stream.avail_out == 0);
  }
};

Gzip::Gzip() : impl_(std::make_unique<Impl>()) {
  // Fails for want of memory alone, as new would.
  if (deflateInit2(&impl_->stream, kLevel, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
}

Gzip::~Gzip() { deflateEnd(&impl_->stream); }

void Gzip::Append(std::string_view text) { impl_->Run(text, Z_NO_FLUSH); }

size_t Gzip::size() const { return impl_->out.size(); }

std::string Gzip::Finish() {
  impl_->Run({}, Z_FINISH);
  return std::move(impl_->out);
}

}  // namespace tenure::background::targets
