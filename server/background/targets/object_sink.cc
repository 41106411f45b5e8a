// What all sinks share. Layer: background/targets.
#include "server/background/targets/object_sink.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/background/targets/directory_sink.h"
#include "server/background/targets/s3_sink.h"
#include "server/base/status.h"
#include "server/store/target_url.h"

namespace tenure::background::targets {

absl::StatusOr<std::unique_ptr<ObjectSink>> MakeSink(const store::TargetSettings& settings, const Access& access,
                                                     HttpClient& http) {
  TENURE_ASSIGN_OR_RETURN(
      const store::TargetUrl url,
      store::ParseTargetUrl(settings.purpose, settings.url, settings.region, settings.endpoint,
                            access.aws.region.empty() ? std::string_view("us-east-1") : access.aws.region));
  if (url.scheme == store::TargetScheme::kS3) {
    if (!access.aws.given()) {
      return absl::FailedPreconditionError(
          "the daemon has no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in its environment");
    }
    return std::make_unique<S3Sink>(url, access.aws, http);
  }
  return DirectorySink::Open(url.path, access.directory);
}

absl::Status PutVerified(ObjectSink& sink, const std::string& name, const std::string& bytes,
                         std::string_view content_type, const std::stop_token& stop) {
  TENURE_RETURN_IF_ERROR(sink.Put(name, bytes, content_type, stop));
  TENURE_ASSIGN_OR_RETURN(const std::string read, sink.Read(name, bytes.size() + 1, stop));
  if (read != bytes) return absl::DataLossError(absl::StrCat(name, " reads back otherwise than it was written"));
  return absl::OkStatus();
}

std::string SegmentOf(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string FolderOf(const store::Target& target) {
  return absl::StrCat(SegmentOf(target.name), ".",
                      absl::FormatTime("%Y%m%dT%H%M%E6S", target.created, absl::UTCTimeZone()));
}

}  // namespace tenure::background::targets
