// See metrics_page.h. Layer: http. Thread-safe.
#include "server/http/metrics_page.h"

#include <sstream>
#include <utility>

#include "prometheus/text_serializer.h"

namespace tenure::http {

MetricsPage::MetricsPage(Metrics& metrics, std::function<void()> refresh)
    : metrics_(metrics), process_(metrics), refresh_(std::move(refresh)) {}

Response MetricsPage::Render() {
  std::lock_guard lock(mutex_);
  if (refresh_) refresh_();
  process_.Refresh();
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, metrics_.registry().Collect());
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = std::move(out).str();
  return response;
}

}  // namespace tenure::http
