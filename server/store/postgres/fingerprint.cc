#include "server/store/postgres/fingerprint.h"

#include <cstring>

#include "server/store/postgres/params.h"

namespace tenure::store::postgres {
namespace {

// Not a defence against an adversary (who could only confuse keys of his own queue), but against mistakes.
class Hash {
 public:
  void Bytes(std::string_view bytes) {
    Int(static_cast<int64_t>(bytes.size()));
    for (char c : bytes) Byte(static_cast<unsigned char>(c));
  }
  void Int(int64_t value) {
    for (int shift = 56; shift >= 0; shift -= 8)
      Byte(static_cast<unsigned char>(static_cast<uint64_t>(value) >> shift));
  }
  template <typename T>
  void Optional(const std::optional<T>& value) {
    Int(value.has_value());
    if (value) Int(static_cast<int64_t>(*value));
  }
  std::string Finish() const {
    std::string out;
    wire::Put64(out, static_cast<uint64_t>(state_ >> 64));
    wire::Put64(out, static_cast<uint64_t>(state_));
    return out;
  }

 private:
  using Wide = unsigned __int128;
  void Byte(unsigned char byte) { state_ = (state_ ^ byte) * kPrime; }
  static constexpr Wide kPrime = (static_cast<Wide>(0x0000000001000000ull) << 64) | 0x000000000000013Bull;
  Wide state_ = (static_cast<Wide>(0x6c62272e07bb0142ull) << 64) | 0x62b821756295c58dull;
};

std::optional<int64_t> Micros(const std::optional<absl::Duration>& d) {
  if (!d) return std::nullopt;
  return absl::ToInt64Microseconds(*d);
}
std::optional<int64_t> Micros(const std::optional<absl::Time>& t) {
  if (!t) return std::nullopt;
  return ToPgTime(*t);
}

}  // namespace

std::string Fingerprint(const NewJob& job) {
  Hash hash;
  hash.Bytes(job.kind);
  hash.Bytes(job.payload.data);
  hash.Bytes(job.payload.content_type);
  hash.Int(static_cast<int64_t>(job.headers.size()));
  for (const auto& [key, value] : job.headers) {
    hash.Bytes(key);
    hash.Bytes(value);
  }
  hash.Int(job.priority);
  hash.Bytes(job.tenant);
  hash.Optional(Micros(job.due));
  hash.Optional(Micros(job.delay));
  hash.Optional(Micros(job.expires));
  hash.Optional(Micros(job.ttl));
  hash.Optional(job.max_attempts);
  hash.Optional(job.crash_budget);
  hash.Int(job.backoff.has_value());
  if (job.backoff) {
    hash.Int(job.backoff->initial_us);
    int64_t bits;
    std::memcpy(&bits, &job.backoff->multiplier, sizeof bits);
    hash.Int(bits);
    hash.Int(job.backoff->max_us);
  }
  hash.Bytes(job.effect_key);
  // Left out where there are none, so that jobs without keys have the fingerprint that they had before there were keys.
  if (!job.concurrency_keys.empty() || !job.group.empty()) {
    for (const std::string& key : job.concurrency_keys) hash.Bytes(key);
    hash.Bytes(job.group);
  }
  if (job.unique) {
    hash.Bytes(job.unique->key);
    hash.Int(job.unique->by_kind);
    hash.Int(static_cast<int64_t>(job.unique->on_conflict));
    hash.Int(absl::ToInt64Microseconds(job.unique->period));
    for (JobState state : job.unique->states) hash.Int(static_cast<int64_t>(state));
  }
  if (job.depends_on) {
    for (const JobId& id : job.depends_on->jobs) hash.Int(id.seq);
    for (int32_t item : job.depends_on->items) hash.Int(item);
    hash.Int(job.depends_on->all_ended);
    hash.Int(job.depends_on->release_on_failure);
  }
  return hash.Finish();
}

}  // namespace tenure::store::postgres
