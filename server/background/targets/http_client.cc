// HttpClient: see the header. Layer: background/targets.
#include "server/background/targets/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/background/targets/address_guard.h"
#include "server/base/status.h"

namespace tenure::background::targets {
namespace {

constexpr long kMaxConnections = 64;
constexpr long kConnectMillis = 5'000;

struct Transfer {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  HttpRequest request;
  HttpResponse response;
  HttpClient::Done done;
  std::string refused;  // The address.
  bool too_long = false;
  bool allow_private = false;
  char error[CURL_ERROR_SIZE] = "";

  ~Transfer() {
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }
};

size_t OnBody(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (transfer.response.body.size() + size > transfer.request.max_response) {
    transfer.too_long = true;
    return 0;
  }
  transfer.response.body.append(data, size);
  return size;
}

size_t OnHeader(char* data, size_t, size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const absl::string_view line(data, size);
  const size_t colon = line.find(':');
  if (colon != absl::string_view::npos && transfer.response.headers.size() < 100) {
    transfer.response.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return size;
}

// libcurl asks for each address that it tries; CURL_SOCKET_BAD makes it go on to the next.
curl_socket_t OnSocket(void* user, curlsocktype purpose, curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (purpose == CURLSOCKTYPE_IPCXN && !transfer.allow_private && !IsPublic(address->addr)) {
    transfer.refused = ToText(address->addr);
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

}  // namespace

struct HttpClient::Impl {
  explicit Impl(bool allow) : allow_private(allow) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, kMaxConnections);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, kMaxConnections);
  }
  ~Impl() {
    for (const auto& [easy, transfer] : transfers) curl_multi_remove_handle(multi, easy);
    transfers.clear();
    curl_multi_cleanup(multi);
  }

  CURLM* multi;
  const bool allow_private;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers;
};

HttpClient::HttpClient(bool allow_private) : impl_(std::make_unique<Impl>(allow_private)) {}
HttpClient::~HttpClient() = default;

void HttpClient::Start(HttpRequest request, Done done) {
  auto transfer = std::make_unique<Transfer>();
  Transfer& t = *transfer;
  t.request = std::move(request);
  t.done = std::move(done);
  t.allow_private = impl_->allow_private;
  t.easy = curl_easy_init();
  CURL* easy = t.easy;
  curl_easy_setopt(easy, CURLOPT_URL, t.request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "tenured");
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t.error);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectMillis);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                   std::max<long>(1, static_cast<long>(absl::ToInt64Milliseconds(t.request.timeout))));
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &OnSocket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &t);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &t);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &t);
  if (t.request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (t.request.method != "GET") {
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, t.request.method.c_str());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.request.body.size()));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, t.request.body.data());
  }
  for (const std::string& header : t.request.headers) t.headers = curl_slist_append(t.headers, header.c_str());
  t.headers = curl_slist_append(t.headers, "Expect:");  // No wait for a 100 Continue.
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, t.headers);
  impl_->transfers.emplace(easy, std::move(transfer));
  curl_multi_add_handle(impl_->multi, easy);
}

int HttpClient::running() const { return static_cast<int>(impl_->transfers.size()); }

void HttpClient::Wake() { curl_multi_wakeup(impl_->multi); }

void HttpClient::Run(absl::Duration wait) {
  int unused = 0;
  curl_multi_perform(impl_->multi, &unused);
  CURLMsg* message = curl_multi_info_read(impl_->multi, &unused);
  if (message == nullptr && wait > absl::ZeroDuration()) {
    curl_multi_poll(impl_->multi, nullptr, 0, static_cast<int>(std::max<int64_t>(1, absl::ToInt64Milliseconds(wait))),
                    nullptr);
    curl_multi_perform(impl_->multi, &unused);
    message = curl_multi_info_read(impl_->multi, &unused);
  }
  for (; message != nullptr; message = curl_multi_info_read(impl_->multi, &unused)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    auto node = impl_->transfers.extract(message->easy_handle);
    curl_multi_remove_handle(impl_->multi, message->easy_handle);
    Transfer& t = *node.mapped();
    curl_off_t micros = 0;
    curl_easy_getinfo(t.easy, CURLINFO_TOTAL_TIME_T, &micros);
    if (code == CURLE_OK) {
      long status = 0;
      curl_easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
      t.response.status = static_cast<int>(status);
      t.response.took = absl::Microseconds(micros);
      t.done(std::move(t.response));
    } else if (t.too_long) {
      t.done(
          absl::ResourceExhaustedError(absl::StrCat("the answer is longer than ", t.request.max_response, " bytes")));
    } else if (!t.refused.empty()) {
      t.done(MakeError(absl::StatusCode::kPermissionDenied, "TARGET_ADDRESS_REFUSED",
                       absl::StrCat("the host has the address ", t.refused,
                                    ", which is not public; --allow-private-targets allows it")));
    } else {
      t.done(absl::UnavailableError(t.error[0] != '\0' ? t.error : curl_easy_strerror(code)));
    }
  }
}

absl::StatusOr<HttpResponse> HttpClient::Fetch(HttpRequest request, const std::stop_token& stop) {
  const std::stop_callback on_stop(stop, [this] { Wake(); });
  // Outlives this call if it is cut short: the request goes on until it is over or the client goes.
  const auto answer = std::make_shared<std::optional<absl::StatusOr<HttpResponse>>>();
  Start(std::move(request), [answer](absl::StatusOr<HttpResponse> response) { answer->emplace(std::move(response)); });
  while (!answer->has_value()) {
    if (stop.stop_requested()) return absl::CancelledError("stopped");
    Run(absl::Seconds(1));
  }
  return std::move(**answer);
}

}  // namespace tenure::background::targets
