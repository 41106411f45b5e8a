#include "server/rpc/json_keys.h"

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tenure::rpc {
namespace {

using Json = nlohmann::json;

// Follows the parser through the text and keeps where it is.
class KeyWatch : public nlohmann::json_sax<Json> {
 public:
  std::optional<std::string> repeated;

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool string(string_t&) override { return Value(); }
  bool binary(binary_t&) override { return Value(); }
  bool start_object(size_t) override { return Open(false); }
  bool start_array(size_t) override { return Open(true); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = name;
    if (level.keys.insert(name).second) return true;
    repeated = Path();
    return false;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  struct Level {
    bool list = false;
    size_t index = 0;  // Of the element of a list that is being read.
    std::string key;   // Of the object's value that is being read.
    std::set<std::string> keys;
  };

  bool Value() {
    if (!levels_.empty()) ++levels_.back().index;
    return true;
  }
  bool Open(bool list) {
    levels_.push_back({.list = list});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return Value();
  }
  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.list) {
        absl::StrAppend(&path, "[", level.index, "]");
      } else {
        absl::StrAppend(&path, path.empty() ? "" : ".", level.key);
      }
    }
    return path;
  }

  std::vector<Level> levels_;
};

}  // namespace

std::optional<std::string> RepeatedKey(const std::string& json) {
  KeyWatch watch;
  Json::sax_parse(json, &watch);
  return watch.repeated;
}

}  // namespace tenure::rpc
