// S3Sink: see the header. A PUT is atomic there, and read after write is consistent. Layer: background/targets.
#include "server/background/targets/s3_sink.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr size_t kMaxErrorBody = 300;

// <Code>AccessDenied</Code>
std::string CodeOf(const std::string& body) {
  const size_t begin = body.find("<Code>"), end = body.find("</Code>");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return body.substr(0, kMaxErrorBody);
  return body.substr(begin + 6, std::min(end - begin - 6, kMaxErrorBody));
}

}  // namespace

absl::StatusOr<HttpResponse> S3Sink::Send(HttpRequest request, const std::string& name, const std::stop_token& stop) {
  const std::string key = url_.path.empty() ? name : absl::StrCat(url_.path, "/", name);
  request.url = absl::StrCat(url_.url, EncodePath(absl::StrCat("/", key)));
  request.timeout = kTimeout;
  SignAws(credentials_, "s3", url_.region, absl::Now(), request);
  TENURE_ASSIGN_OR_RETURN(HttpResponse response, http_.Fetch(std::move(request), stop));
  if (response.status < 200 || response.status >= 300) {
    const std::string error =
        absl::StrCat("the store answers ", response.status, " ", CodeOf(response.body), " for ", key);
    if (response.status == 404) return absl::NotFoundError(error);
    // What is missing is denied to those who may not list.
    if (response.status == 403) return absl::PermissionDeniedError(error);
    return absl::UnavailableError(error);
  }
  return response;
}

absl::Status S3Sink::Put(const std::string& name, const std::string& bytes, std::string_view content_type,
                         const std::stop_token& stop) {
  HttpRequest request;
  request.method = "PUT";
  request.body = bytes;
  request.headers = {absl::StrCat("Content-Type: ", absl::string_view(content_type.data(), content_type.size()))};
  return Send(std::move(request), name, stop).status();
}

absl::StatusOr<std::string> S3Sink::Read(const std::string& name, size_t max_bytes, const std::stop_token& stop) {
  HttpRequest request;
  request.method = "GET";
  request.max_response = std::max<size_t>(max_bytes, 64 << 10);
  TENURE_ASSIGN_OR_RETURN(HttpResponse response, Send(std::move(request), name, stop));
  return std::move(response.body);
}

}  // namespace tenure::background::targets
