// Rewrites: rows that an earlier release wrote in an old form are brought into the new one while the database is in
// use, a page a transaction. Layer: store. Plain values, and the part of the store that runs them. Thread-safe; errors
// common to all methods as in store.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/types.h"

namespace tenure::store {

struct RewriteProgress {
  std::string name;
  int64_t rows_read = 0;
  int64_t rows_rewritten = 0;
  bool done = false;
  std::string last_error;
};

struct RewriteStep {
  int64_t rows_read = 0;
  int64_t rows_rewritten = 0;
  bool done = false;  // Also if the term is over: nothing was written then.
};

class RewriteStore {
 public:
  virtual ~RewriteStore() = default;

  // Those that this build knows, in their order, with how far they are. Most releases have none.
  virtual absl::StatusOr<std::vector<RewriteProgress>> ListRewrites() = 0;
  // Rewrites the next rows, at most `limit`, and moves the cursor, in one transaction under the leader's term: it can
  // be cut short and repeated at any moment.
  virtual absl::StatusOr<RewriteStep> StepRewrite(const Fence& fence, std::string_view name, int limit) = 0;
  // Writes down why a step failed. Fenced.
  virtual absl::Status NoteRewriteError(const Fence& fence, std::string_view name, std::string_view error) = 0;
};

}  // namespace tenure::store
