// How a batch travels: items are converted one by one (those that do not pass are refused here), packed into messages
// within the daemon's limits, and the answers put back in the order of the items. Layer: client. Thread-safe: function
// templates.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "calls.h"
#include "status_codec.h"

namespace tenure::client::internal {

constexpr int kMaxBatchItems = 10'000;
// Below the 4 MiB that a gRPC server takes by default, with room for framing.
constexpr size_t kMaxBatchBytes = 3 << 20;

// An answer of the wrong length would give items the results of their neighbours.
absl::Status WrongCount(int asked, int answered);

// convert(index, request) adds item `index` to the request or says why not; size(request) is the number of items in it;
// take(result, sent) makes the public result of one answer that has no error.
template <typename Result, typename Request, typename Response, typename Convert, typename Size, typename Take>
std::vector<absl::StatusOr<Result>> CallInBatches(Connection& connection, size_t count, CallBounds bounds,
                                                  Convert convert, Size size, Take take) {
  std::vector<absl::StatusOr<Result>> results(count, absl::StatusOr<Result>(absl::UnknownError("not sent")));
  std::vector<size_t> carried;
  Request request;
  size_t bytes = 0;
  const SteadyTime deadline =
      std::chrono::steady_clock::now() + std::min<Duration>(bounds.timeout, std::chrono::hours(8760));
  SteadyTime sent;
  bounds.sent = &sent;
  const auto flush = [&] {
    if (carried.empty()) return;
    Response response;
    bounds.timeout = deadline - std::chrono::steady_clock::now();
    absl::Status status = Call(connection, request, &response, bounds);
    if (status.ok() && response.results_size() != static_cast<int>(carried.size())) {
      status = WrongCount(static_cast<int>(carried.size()), response.results_size());
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      if (!status.ok()) {
        results[carried[i]] = status;
        continue;
      }
      auto& result = *response.mutable_results(static_cast<int>(i));
      if (result.has_error()) {
        results[carried[i]] = FromItemError(result.error());
      } else {
        results[carried[i]] = take(result, sent);
      }
    }
    carried.clear();
    request.Clear();
    bytes = 0;
  };
  for (size_t i = 0; i < count; ++i) {
    Request single;
    if (absl::Status status = convert(i, &single); !status.ok()) {
      results[i] = status;
      continue;
    }
    const size_t weight = single.ByteSizeLong();
    if (size(request) >= kMaxBatchItems || (bytes + weight > kMaxBatchBytes && !carried.empty())) flush();
    if (carried.empty()) {
      request = std::move(single);
    } else {
      request.MergeFrom(single);
    }
    bytes += weight;
    carried.push_back(i);
  }
  flush();
  return results;
}

// The result of a batch of one.
template <typename Result>
absl::StatusOr<Result> Only(std::vector<absl::StatusOr<Result>> results) {
  return std::move(results.front());
}

}  // namespace tenure::client::internal
