// Parameters of a statement in PostgreSQL's binary format: no hex, no quoting, no text arrays. Layer: store/postgres.
// Not thread-safe; build one per execution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/time/time.h"

namespace tenure::store::postgres {

// Microseconds since 2000-01-01 UTC, PostgreSQL's timestamptz; infinite times map to its infinities.
int64_t ToPgTime(absl::Time time);
absl::Time FromPgTime(int64_t micros);

namespace wire {

inline void Put16(std::string& out, uint16_t v) {
  out.push_back(static_cast<char>(v >> 8));
  out.push_back(static_cast<char>(v));
}
inline void Put32(std::string& out, uint32_t v) {
  Put16(out, static_cast<uint16_t>(v >> 16));
  Put16(out, static_cast<uint16_t>(v));
}
inline void Put64(std::string& out, uint64_t v) {
  Put32(out, static_cast<uint32_t>(v >> 32));
  Put32(out, static_cast<uint32_t>(v));
}

// Bytes of one value; the overload chosen fixes the PostgreSQL type.
inline void PutValue(std::string& out, bool v) { out.push_back(v ? 1 : 0); }
inline void PutValue(std::string& out, int16_t v) { Put16(out, static_cast<uint16_t>(v)); }
inline void PutValue(std::string& out, int32_t v) { Put32(out, static_cast<uint32_t>(v)); }
inline void PutValue(std::string& out, int64_t v) { Put64(out, static_cast<uint64_t>(v)); }
inline void PutValue(std::string& out, double v) {
  uint64_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  Put64(out, bits);
}
inline void PutValue(std::string& out, std::string_view v) { out.append(v); }
inline void PutValue(std::string& out, absl::Time v) { Put64(out, static_cast<uint64_t>(ToPgTime(v))); }

template <typename T>
constexpr uint32_t OidOf() {
  if constexpr (std::is_same_v<T, bool>)
    return 16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return 21;
  else if constexpr (std::is_same_v<T, int32_t>)
    return 23;
  else if constexpr (std::is_same_v<T, int64_t>)
    return 20;
  else if constexpr (std::is_same_v<T, double>)
    return 701;
  else if constexpr (std::is_same_v<T, absl::Time>)
    return 1184;
  else
    return 25;  // text
}
inline constexpr uint32_t kBytea = 17;

}  // namespace wire

class Params {
 public:
  template <typename T>
  Params& Add(const T& value) {
    Begin();
    wire::PutValue(data_, value);
    End();
    return *this;
  }
  template <typename T>
  Params& Add(const std::optional<T>& value) {
    if (!value) return AddNull();
    return Add(*value);
  }
  Params& Add(const std::string& value) { return Add(std::string_view(value)); }
  Params& Add(const char* value) { return Add(std::string_view(value)); }
  Params& AddNull() {
    starts_.push_back(data_.size());
    sizes_.push_back(-1);
    return *this;
  }

  // An array of what `get` returns for each element of `items`: a value or std::optional of one (nullopt: NULL; an
  // empty array if all are). Types as in Add.
  template <typename Range, typename Get>
  Params& AddArray(const Range& items, Get get, std::optional<uint32_t> oid = std::nullopt) {
    using Raw = std::decay_t<decltype(get(*std::begin(items)))>;
    using Element = typename Unwrap<Raw>::Type;
    Begin();
    size_t count = std::size(items);
    // Beside the array of keys, which a batch always has, unnest fills up shorter ones with NULL: a field that nobody
    // set costs nothing.
    if constexpr (Unwrap<Raw>::kOptional) {
      if (std::none_of(std::begin(items), std::end(items), [&](const auto& item) { return get(item).has_value(); })) {
        count = 0;
      }
    }
    wire::Put32(data_, count == 0 ? 0 : 1);  // Dimensions.
    const size_t null_flag = data_.size();
    wire::Put32(data_, 0);
    wire::Put32(data_, oid.value_or(wire::OidOf<Element>()));
    if (count > 0) {
      wire::Put32(data_, static_cast<uint32_t>(count));
      wire::Put32(data_, 1);  // Lower bound.
      bool nulls = false;
      for (const auto& item : items) {
        const auto value = get(item);
        if constexpr (Unwrap<Raw>::kOptional) {
          if (!value) {
            wire::Put32(data_, 0xFFFFFFFFu);
            nulls = true;
            continue;
          }
          PutElement(*value);
        } else {
          PutElement(value);
        }
      }
      if (nulls) data_[null_flag + 3] = 1;
    }
    End();
    return *this;
  }
  template <typename Range>
  Params& AddArray(const Range& items) {
    using T = std::decay_t<decltype(*std::begin(items))>;
    if constexpr (std::is_same_v<T, std::string>) {
      return AddArray(items, [](const std::string& v) { return std::string_view(v); });
    } else {
      return AddArray(items, [](const T& v) { return v; });
    }
  }
  template <typename Range, typename Get>
  Params& AddByteaArray(const Range& items, Get get) {
    return AddArray(items, get, wire::kBytea);
  }

  int count() const { return static_cast<int>(sizes_.size()); }
  // Valid until the next Add; for libpq.
  std::vector<const char*> values() const;
  const std::vector<int>& lengths() const { return sizes_; }

 private:
  template <typename T>
  struct Unwrap {
    using Type = T;
    static constexpr bool kOptional = false;
  };
  template <typename T>
  struct Unwrap<std::optional<T>> {
    using Type = T;
    static constexpr bool kOptional = true;
  };

  template <typename T>
  void PutElement(const T& value) {
    const size_t at = data_.size();
    wire::Put32(data_, 0);
    wire::PutValue(data_, value);
    const uint32_t size = static_cast<uint32_t>(data_.size() - at - 4);
    for (int i = 0; i < 4; ++i) data_[at + static_cast<size_t>(i)] = static_cast<char>(size >> (24 - 8 * i));
  }
  void Begin() { starts_.push_back(data_.size()); }
  void End() { sizes_.push_back(static_cast<int>(data_.size() - starts_.back())); }

  std::string data_;
  std::vector<size_t> starts_;
  std::vector<int> sizes_;
};

}  // namespace tenure::store::postgres
