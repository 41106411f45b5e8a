// Which request gets which answer: probes, metrics, JSON RPCs, or a text that says what would have been right. Layer:
// http. Thread-safe. The transport is server.h's.
#pragma once

#include <string>
#include <vector>

#include "server/base/metrics.h"
#include "server/http/browser_guard.h"
#include "server/http/json_handler.h"
#include "server/http/message.h"
#include "server/http/metrics_page.h"
#include "server/http/readiness.h"

namespace tenure::http {

class Router {
 public:
  struct Parts {
    JsonHandler json;                        // Required.
    std::function<engine::Health()> health;  // Required.
    std::vector<ReadinessCheck> checks;      // See Readiness.
    std::function<void()> refresh_metrics;   // See MetricsPage.
    BrowserGuard::Options browsers;
  };

  Router(Metrics& metrics, Parts parts);

  // A RequestHandler. Answers at once, except for RPCs; counts tenure_http_requests_total.
  std::function<void()> Handle(Request request, Respond respond);

 private:
  std::function<void()> HandleRpc(Request request, Respond respond);
  Response Probe(const Request& request, bool live) const;

  Metrics& metrics_;
  JsonHandler json_;
  Readiness readiness_;
  MetricsPage page_;
  BrowserGuard guard_;
};

}  // namespace tenure::http
