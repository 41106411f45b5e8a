// Structured logs over spdlog: one event, then key=value pairs (text) or one JSON object a line. Layer: base.
// Thread-safe.
//
//   LogInfo("lease reaped", {{"queue", name}, {"jobs", absl::StrCat(n)}});
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace tenure {

enum class LogFormat { kText, kJson };

using LogField = std::pair<std::string_view, std::string>;

// Sends logs to stderr. `level`: debug, info, warn or error. INVALID_ARGUMENT for another level.
absl::Status InitLogging(LogFormat format, std::string_view level);

void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {});
void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {});
void LogWarn(std::string_view event, std::initializer_list<LogField> fields = {});
void LogError(std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace tenure
