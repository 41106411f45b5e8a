// Batches with per-item results: each item is converted on its own; one that does not convert has its error put in its
// result and is left out of the engine's call; the answers go back to the places they came from. Layer: rpc. Values
// only.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/status.h"
#include "server/rpc/status_mapping.h"

namespace tenure::rpc {

template <typename Item>
struct Batch {
  std::vector<Item> items;
  std::vector<int> places;  // Of each item in the request.
};

// `convert(item, index)` gives StatusOr<Item>. Adds one result for each item to `results`.
template <typename Item, typename Requests, typename Results, typename Convert>
Batch<Item> ConvertBatch(Requests* requests, Results* results, Convert convert) {
  Batch<Item> batch;
  batch.items.reserve(static_cast<size_t>(requests->size()));
  batch.places.reserve(static_cast<size_t>(requests->size()));
  results->Reserve(requests->size());
  for (int i = 0; i < requests->size(); ++i) {
    auto* result = results->Add();
    absl::StatusOr<Item> item = convert((*requests)[i], i);
    if (!item.ok()) {
      ToItemError(item.status(), result->mutable_error());
      continue;
    }
    batch.items.push_back(*std::move(item));
    batch.places.push_back(i);
  }
  return batch;
}

// INTERNAL if the engine answered another number of items than it was asked.
template <typename Answer>
absl::Status CheckAnswered(const absl::StatusOr<std::vector<Answer>>& answers, const std::vector<int>& places) {
  if (!answers.ok()) return answers.status();
  if (answers->size() != places.size()) {
    return MakeError(absl::StatusCode::kInternal, "INTERNAL",
                     "the engine answered another number of items than it was asked");
  }
  return absl::OkStatus();
}

}  // namespace tenure::rpc
