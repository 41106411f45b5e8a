#include "server/base/cron.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace tenure {
namespace {

constexpr int kMaxTerms = 64;  // Of a field.
// February 29 may be eight years away (2096 to 2104); nothing else that passes Parse is rarer.
constexpr int kMaxYears = 9;
constexpr int64_t kLastYear = 9000;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

struct FieldRule {
  absl::string_view name;
  int min;
  int max;
  std::span<const absl::string_view> names;  // Of min, min + 1, ...
};

constexpr absl::string_view kMonthNames[] = {"jan", "feb", "mar", "apr", "may", "jun",
                                             "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr absl::string_view kDayNames[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
constexpr FieldRule kRules[] = {
    {"minute", 0, 59, {}},
    {"hour", 0, 23, {}},
    {"day of month", 1, 31, {}},
    {"month", 1, 12, kMonthNames},
    {"day of week", 0, 7, kDayNames},
};
enum FieldIndex { kMinute, kHour, kMonthDay, kMonth, kWeekDay };

struct Macro {
  absl::string_view name;
  absl::string_view fields;
};
constexpr Macro kMacros[] = {
    {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"}, {"@weekly", "0 0 * * 0"},
    {"@daily", "0 0 * * *"},  {"@midnight", "0 0 * * *"}, {"@hourly", "0 * * * *"},
};

absl::Status Wrong(const FieldRule& rule, absl::string_view rest) {
  return absl::InvalidArgumentError(absl::StrCat("in the ", rule.name, ": ", rest));
}

// What a person wrote, short enough and harmless for a message.
std::string Quoted(absl::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 32)) out += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  return out + (text.size() > 32 ? "...'" : "'");
}

absl::StatusOr<int> ParseValue(const FieldRule& rule, absl::string_view text) {
  for (size_t i = 0; i < rule.names.size(); ++i) {
    if (absl::EqualsIgnoreCase(text, rule.names[i])) return rule.min + static_cast<int>(i);
  }
  int value = 0;
  const bool digits = !text.empty() && text.size() <= 4 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!digits || !absl::SimpleAtoi(text, &value)) {
    return Wrong(
        rule,
        absl::StrCat(Quoted(text), " is neither a number",
                     rule.names.empty() ? "" : absl::StrCat(", a name (", rule.names[0], ", ", rule.names[1], " ...)"),
                     " nor *"));
  }
  if (value < rule.min || value > rule.max) {
    return Wrong(rule, absl::StrCat(value, " is not from ", rule.min, " to ", rule.max));
  }
  return value;
}

struct Field {
  uint64_t bits = 0;
  bool any = false;       // Exactly * or ?.
  bool last_day = false;  // Holds L.
};

absl::Status ParseTerm(int index, absl::string_view term, Field& field) {
  const FieldRule& rule = kRules[index];
  if (term.empty()) return Wrong(rule, "there is nothing between two commas");
  if (index == kMonthDay && absl::EqualsIgnoreCase(term, "l")) {
    field.last_day = true;
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(term, '/');
  if (parts.size() > 2) return Wrong(rule, absl::StrCat(Quoted(term), " has more than one step"));
  int step = 1;
  if (parts.size() == 2) {
    const int longest = rule.max - rule.min;
    if (parts[1].empty() || parts[1].size() > 4 || !absl::SimpleAtoi(parts[1], &step) || step < 1 || step > longest) {
      return Wrong(rule, absl::StrCat("the step ", Quoted(parts[1]), " is not a number from 1 to ", longest));
    }
  }
  int low = rule.min, high = rule.max;
  if (parts[0] != "*") {
    const std::vector<absl::string_view> ends = absl::StrSplit(parts[0], '-');
    if (ends.size() > 2) return Wrong(rule, absl::StrCat(Quoted(term), " is not a range such as 1-5"));
    absl::StatusOr<int> value = ParseValue(rule, ends[0]);
    if (!value.ok()) return value.status();
    low = *value;
    if (ends.size() == 2) {
      value = ParseValue(rule, ends[1]);
      if (!value.ok()) return value.status();
      high = *value;
      // A week may end with the Sunday that it begins with: SAT-SUN.
      if (index == kWeekDay && high == 0 && low > 0) high = 7;
      if (low > high) {
        return Wrong(rule, absl::StrCat("the range ", Quoted(parts[0]), " ends before it begins; write two ranges"));
      }
    } else if (parts.size() == 1) {
      high = low;
    }
  } else if (index == kWeekDay) {
    high = 6;
  }
  for (int value = low; value <= high; value += step)
    field.bits |= uint64_t{1} << (index == kWeekDay ? value % 7 : value);
  return absl::OkStatus();
}

absl::StatusOr<Field> ParseField(int index, absl::string_view text) {
  Field field;
  const bool day = index == kMonthDay || index == kWeekDay;
  if (text == "*" || (day && text == "?")) {
    field.any = true;
    text = "*";
  }
  if (std::count(text.begin(), text.end(), ',') >= kMaxTerms) {
    return Wrong(kRules[index], absl::StrCat("there are more than ", kMaxTerms, " terms"));
  }
  for (const absl::string_view term : absl::StrSplit(text, ',')) {
    if (absl::Status parsed = ParseTerm(index, term, field); !parsed.ok()) return parsed;
  }
  return field;
}

int DaysIn(absl::CivilMonth month) { return static_cast<int>(absl::CivilDay(month + 1) - absl::CivilDay(month)); }

// The lowest set bit at or after `from`, or -1.
int NextBit(uint64_t bits, int from) {
  if (from > 63) return -1;
  bits &= ~uint64_t{0} << from;
  return bits == 0 ? -1 : __builtin_ctzll(bits);
}

// The instant of a local minute by the rules at the head of cron.h.
absl::Time Resolve(absl::CivilMinute minute, const absl::TimeZone& zone) {
  const absl::TimeZone::TimeInfo info = zone.At(absl::CivilSecond(minute));
  return info.kind == absl::TimeZone::TimeInfo::SKIPPED ? info.trans : info.pre;
}

// The next instant at which the clocks of `zone` change, after `time`.
absl::Time NextChange(absl::Time time, const absl::TimeZone& zone) {
  absl::TimeZone::CivilTransition change;
  if (!zone.NextTransition(time, &change)) return absl::InfiniteFuture();
  const absl::TimeZone::TimeInfo info = zone.At(change.to);
  return info.kind == absl::TimeZone::TimeInfo::UNIQUE ? info.pre : info.trans;
}

}  // namespace

absl::StatusOr<CronExpression> CronExpression::Parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is ", text.size(), " bytes long; at most ", kMaxBytes, " are allowed"));
  }
  absl::string_view rest = absl::StripAsciiWhitespace(View(text));
  if (absl::StartsWith(rest, "@")) {
    const auto* macro = std::find_if(std::begin(kMacros), std::end(kMacros),
                                     [&](const Macro& known) { return absl::EqualsIgnoreCase(known.name, rest); });
    if (macro == std::end(kMacros)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(rest), " is none of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually",
                       absl::StartsWithIgnoreCase(rest, "@every") ? "; for a fixed distance give an interval" : ""));
    }
    rest = macro->fields;
  }
  const std::vector<absl::string_view> texts = absl::StrSplit(rest, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (texts.size() != 5) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", texts.size(), " fields; five are needed: minute, hour, day of month, month, day of week"));
  }
  std::array<Field, 5> fields;
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<Field> field = ParseField(i, texts[static_cast<size_t>(i)]);
    if (!field.ok()) return field.status();
    fields[static_cast<size_t>(i)] = *field;
  }
  CronExpression out;
  out.minutes_ = fields[kMinute].bits;
  out.hours_ = static_cast<uint32_t>(fields[kHour].bits);
  out.month_days_ = static_cast<uint32_t>(fields[kMonthDay].bits);
  out.last_day_ = fields[kMonthDay].last_day;
  out.any_month_day_ = fields[kMonthDay].any;
  out.months_ = static_cast<uint32_t>(fields[kMonth].bits);
  out.week_days_ = static_cast<uint32_t>(fields[kWeekDay].bits);
  out.any_week_day_ = fields[kWeekDay].any;

  if (out.any_week_day_ && !out.any_month_day_ && !out.last_day_) {
    // Without days of the week, some chosen month must have one of the days. 2024 is a leap year.
    bool ever = false;
    for (int month = 1; month <= 12 && !ever; ++month) {
      if ((out.months_ >> month & 1) == 0) continue;
      const int first = NextBit(out.month_days_, 1);
      ever = first > 0 && first <= DaysIn(absl::CivilMonth(2024, month));
    }
    if (!ever) return absl::InvalidArgumentError("never matches: no chosen month has such a day");
  }
  return out;
}

bool CronExpression::MatchesDay(absl::CivilDay day) const {
  const bool by_month = any_month_day_ || (month_days_ >> day.day() & 1) != 0 ||
                        (last_day_ && absl::CivilMonth(day + 1) != absl::CivilMonth(day));
  // absl counts the days of the week from Monday.
  const int week_day = (static_cast<int>(absl::GetWeekday(day)) + 1) % 7;
  const bool by_week = any_week_day_ || (week_days_ >> week_day & 1) != 0;
  if (any_month_day_ || any_week_day_) return by_month && by_week;
  return by_month || by_week;
}

bool CronExpression::Matches(absl::CivilMinute minute) const {
  return (minutes_ >> minute.minute() & 1) != 0 && (hours_ >> minute.hour() & 1) != 0 &&
         (months_ >> minute.month() & 1) != 0 && MatchesDay(absl::CivilDay(minute));
}

std::optional<absl::CivilMinute> CronExpression::NextLocal(absl::CivilMinute minute) const {
  const int64_t last_year = std::min(minute.year() + kMaxYears, kLastYear);
  absl::CivilDay day(minute);
  while (day.year() <= last_year) {
    if ((months_ >> day.month() & 1) == 0) {
      day = absl::CivilDay(absl::CivilMonth(day) + 1);
      continue;
    }
    if (MatchesDay(day)) {
      const bool first = day == absl::CivilDay(minute);
      for (int hour = NextBit(hours_, first ? minute.hour() : 0); hour >= 0; hour = NextBit(hours_, hour + 1)) {
        const int at = NextBit(minutes_, first && hour == minute.hour() ? minute.minute() : 0);
        if (at >= 0) return absl::CivilMinute(day.year(), day.month(), day.day(), hour, at);
      }
    }
    ++day;
  }
  return std::nullopt;
}

std::optional<absl::Time> CronExpression::NextElapsed(absl::Time after, const absl::TimeZone& zone) const {
  // Between two changes of the clocks local time goes with elapsed time. `from`: the first instant that may be chosen.
  absl::Time from = after + absl::Nanoseconds(1);
  while (true) {
    const absl::Time change = NextChange(from, zone);
    const absl::TimeZone::CivilInfo at = zone.At(from);
    const bool on_minute = at.cs.second() == 0 && at.subsecond == absl::ZeroDuration();
    const std::optional<absl::CivilMinute> local = NextLocal(absl::CivilMinute(at.cs) + (on_minute ? 0 : 1));
    if (!local) return std::nullopt;
    const absl::Time found = from + absl::Seconds(absl::CivilSecond(*local) - at.cs) - at.subsecond;
    if (found < change) return found;
    from = change;
  }
}

std::optional<absl::Time> CronExpression::Next(absl::Time after, const absl::TimeZone& zone) const {
  const absl::CivilSecond local = zone.At(after).cs;
  if (local.year() < 1 || local.year() >= kLastYear) return std::nullopt;
  if (every_hour()) return NextElapsed(after, zone);
  // Resolve never goes back as its argument goes on, so the first that lies after `after` is the answer. Passed over
  // are at most the minutes that happen twice.
  std::optional<absl::CivilMinute> minute = NextLocal(absl::CivilMinute(local));
  while (minute) {
    const absl::Time found = Resolve(*minute, zone);
    if (found > after) return found;
    minute = NextLocal(*minute + 1);
  }
  return std::nullopt;
}

}  // namespace tenure
