// Tunables: parsing and ranges. Layer: background.
#include "server/background/tunables.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/status.h"

namespace tenure::background {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Nothing if it is not a value of this unit at all.
bool Parse(TunableUnit unit, std::string_view text, int64_t* value) {
  if (unit != TunableUnit::kDuration) return absl::SimpleAtoi(View(text), value);
  absl::Duration duration;
  if (!absl::ParseDuration(View(text), &duration)) return false;
  *value = absl::ToInt64Microseconds(duration);
  return true;
}

}  // namespace

std::string FormatTunable(TunableUnit unit, int64_t value) {
  switch (unit) {
    case TunableUnit::kDuration:
      return absl::FormatDuration(absl::Microseconds(value));
    case TunableUnit::kDays:
      return absl::StrCat(value, value == 1 ? " day" : " days");
    case TunableUnit::kRows:
      return absl::StrCat(value, value == 1 ? " row" : " rows");
    case TunableUnit::kPercent:
      return absl::StrCat(value, " %");
    case TunableUnit::kMebibytes:
      return absl::StrCat(value, " MiB");
  }
  return absl::StrCat(value);
}

std::string_view UnitName(TunableUnit unit) {
  switch (unit) {
    case TunableUnit::kDuration:
      return "duration";
    case TunableUnit::kDays:
      return "days";
    case TunableUnit::kRows:
      return "rows";
    case TunableUnit::kPercent:
      return "percent";
    case TunableUnit::kMebibytes:
      return "MiB";
  }
  return "";
}

std::string EnvironmentName(std::string_view tunable) {
  std::string name = absl::StrCat("TENURE_", absl::AsciiStrToUpper(View(tunable)));
  for (char& c : name) {
    if (c == '.' || c == '-') c = '_';
  }
  return name;
}

Tunables::Tunables(std::span<const Tunable> specs) {
  for (const Tunable& spec : specs) entries_[std::string(spec.name)] = Entry{spec, spec.default_value};
}

absl::Status Tunables::Set(std::string_view name, std::string_view value) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    const std::string known =
        absl::StrJoin(entries_, ", ", [](std::string* out, const auto& entry) { out->append(entry.first); });
    return InvalidField(name, absl::StrCat("there is no such tunable; known are ", known));
  }
  const Tunable& spec = found->second.spec;
  int64_t parsed = 0;
  if (!Parse(spec.unit, value, &parsed) || parsed < spec.min || parsed > spec.max) {
    const char* form =
        spec.unit == TunableUnit::kDuration ? "must be a duration (such as 500ms or 1m30s)" : "must be a whole number";
    return InvalidField(name, absl::StrCat(form, " from ", FormatTunable(spec.unit, spec.min), " to ",
                                           FormatTunable(spec.unit, spec.max), ", not \"", View(value), "\""));
  }
  found->second.value = parsed;
  return absl::OkStatus();
}

const Tunables::Entry& Tunables::Find(std::string_view name, bool duration) const {
  const auto found = entries_.find(name);
  if (found == entries_.end() || (found->second.spec.unit == TunableUnit::kDuration) != duration) {
    std::fprintf(stderr, "tunable %.*s is not declared so\n", static_cast<int>(name.size()), name.data());
    std::abort();
  }
  return found->second;
}

int64_t Tunables::Count(std::string_view name) const { return Find(name, false).value; }

absl::Duration Tunables::Duration(std::string_view name) const { return absl::Microseconds(Find(name, true).value); }

std::vector<Tunables::Entry> Tunables::List() const {
  std::vector<Entry> list;
  list.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) list.push_back(entry);
  return list;
}

}  // namespace tenure::background
