#include "server/store/postgres/result.h"

#include <cstdlib>

namespace tenure::store::postgres {
namespace {

constexpr int64_t kEpochDifferenceMicros = 946'684'800'000'000;  // 1970-01-01 to 2000-01-01.

int64_t ReadInt(const char* data, int size) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data);
  int64_t value = static_cast<signed char>(bytes[0]);
  for (int i = 1; i < size; ++i) value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8) | bytes[i];
  return value;
}

// Calls each(bytes, size) for the elements of a one-dimensional binary array; NULLs are passed over.
template <typename Each>
void ForEachElement(std::string_view array, Each each) {
  if (array.size() < 12 || ReadInt(array.data(), 4) == 0) return;
  const int64_t count = ReadInt(array.data() + 12, 4);
  const char* at = array.data() + 20;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = ReadInt(at, 4);
    at += 4;
    if (size < 0) continue;
    each(at, static_cast<int>(size));
    at += size;
  }
}

}  // namespace

int64_t ToPgTime(absl::Time time) {
  if (time == absl::InfiniteFuture()) return INT64_MAX;
  if (time == absl::InfinitePast()) return INT64_MIN;
  return absl::ToUnixMicros(time) - kEpochDifferenceMicros;
}

absl::Time FromPgTime(int64_t micros) {
  if (micros == INT64_MAX) return absl::InfiniteFuture();
  if (micros == INT64_MIN) return absl::InfinitePast();
  return absl::FromUnixMicros(micros + kEpochDifferenceMicros);
}

std::vector<const char*> Params::values() const {
  std::vector<const char*> values(starts_.size());
  for (size_t i = 0; i < starts_.size(); ++i) values[i] = sizes_[i] < 0 ? nullptr : data_.data() + starts_[i];
  return values;
}

int64_t Result::affected() const { return result_ ? std::atoll(PQcmdTuples(result_.get())) : 0; }

int64_t Result::Int(int row, int column) const {
  if (IsNull(row, column)) return 0;
  return ReadInt(PQgetvalue(result_.get(), row, column), PQgetlength(result_.get(), row, column));
}

double Result::Double(int row, int column) const {
  const int64_t bits = Int(row, column);
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::string_view Result::Json(int row, int column) const {
  std::string_view bytes = Bytes(row, column);
  if (!bytes.empty()) bytes.remove_prefix(1);  // The format's version.
  return bytes;
}

std::vector<std::string> Result::TextArray(int row, int column) const {
  std::vector<std::string> out;
  ForEachElement(Bytes(row, column),
                 [&](const char* data, int size) { out.emplace_back(data, static_cast<size_t>(size)); });
  return out;
}

std::vector<int64_t> Result::IntArray(int row, int column) const {
  std::vector<int64_t> out;
  ForEachElement(Bytes(row, column), [&](const char* data, int size) { out.push_back(ReadInt(data, size)); });
  return out;
}

}  // namespace tenure::store::postgres
