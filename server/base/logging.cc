#include "server/base/logging.h"

#include <atomic>

#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace tenure {
namespace {

std::atomic<LogFormat> g_format{LogFormat::kText};

void AppendJsonString(std::string& out, std::string_view text) {
  out.push_back('"');
  for (char c : text) {
    switch (c) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          static const char* kHex = "0123456789abcdef";
          out.append("\\u00").push_back(kHex[(c >> 4) & 15]);
          out.push_back(kHex[c & 15]);
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

// A value goes bare into a text line only if it can be read back from there.
void AppendTextValue(std::string& out, std::string_view value) {
  if (!value.empty() && value.find_first_of(" =\"\\\n\r\t") == std::string_view::npos) {
    out.append(value);
  } else {
    AppendJsonString(out, value);
  }
}

void Write(spdlog::level::level_enum level, std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(level)) return;
  std::string line;
  if (g_format.load(std::memory_order_relaxed) == LogFormat::kJson) {
    line.append("\"event\":");
    AppendJsonString(line, event);
    for (const auto& [key, value] : fields) {
      line.push_back(',');
      AppendJsonString(line, key);
      line.push_back(':');
      AppendJsonString(line, value);
    }
  } else {
    line.append(event);
    for (const auto& [key, value] : fields) {
      line.push_back(' ');
      line.append(key).push_back('=');
      AppendTextValue(line, value);
    }
  }
  logger->log(level, "{}", line);
}

}  // namespace

absl::Status InitLogging(LogFormat format, std::string_view level) {
  spdlog::level::level_enum parsed;
  if (level == "debug") {
    parsed = spdlog::level::debug;
  } else if (level == "info") {
    parsed = spdlog::level::info;
  } else if (level == "warn") {
    parsed = spdlog::level::warn;
  } else if (level == "error") {
    parsed = spdlog::level::err;
  } else {
    return absl::InvalidArgumentError("log level must be debug, info, warn or error");
  }
  g_format = format;
  auto logger = std::make_shared<spdlog::logger>("tenure", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  if (format == LogFormat::kJson) {
    logger->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})");
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void LogDebug(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::debug, event, fields);
}
void LogInfo(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::info, event, fields);
}
void LogWarn(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::warn, event, fields);
}
void LogError(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::err, event, fields);
}

}  // namespace tenure
