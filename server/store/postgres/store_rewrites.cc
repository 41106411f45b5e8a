// PostgresStore: rewrites of rows in an old form, and their registry.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"
#include "server/store/postgres/errors.h"
#include "server/store/postgres/postgres_store.h"
#include "server/store/postgres/rewrites.h"
#include "statements.sql.h"

namespace tenure::store::postgres {

std::span<const Rewrite> AllRewrites() { return {}; }

absl::StatusOr<std::vector<RewriteProgress>> PostgresStore::ListRewrites() {
  std::vector<RewriteProgress> list;
  if (options_.rewrites.empty()) return list;
  TENURE_ASSIGN_OR_RETURN(const Result rows,
                          RunOne("list_rewrites", sql::kListRewrites,
                                 Params().AddArray(options_.rewrites, [](const Rewrite& one) { return one.name; })));
  for (int row = 0; row < rows.rows(); ++row) {
    list.push_back({rows.Text(row, 0), rows.Int(row, 1), rows.Int(row, 2), rows.Bool(row, 3), rows.Text(row, 4)});
  }
  return list;
}

absl::StatusOr<RewriteStep> PostgresStore::StepRewrite(const Fence& fence, std::string_view name, int limit) {
  const auto found = std::find_if(options_.rewrites.begin(), options_.rewrites.end(),
                                  [&](const Rewrite& one) { return one.name == name; });
  if (found == options_.rewrites.end()) {
    return MakeError(absl::StatusCode::kNotFound, "REWRITE_NOT_FOUND",
                     absl::StrCat("this build knows no rewrite ", std::string(name)));
  }
  return Run<RewriteStep>("rewrite", [&](Transaction& tx) -> absl::StatusOr<RewriteStep> {
    TENURE_ASSIGN_OR_RETURN(const Result leading,
                            tx.Run(sql::kCheckLeader, Params().Add(fence.worker).Add(fence.term)));
    if (leading.rows() == 0) return TermOver(fence);
    TENURE_ASSIGN_OR_RETURN(const Result state, tx.Run(sql::kBeginRewrite, Params().Add(name)));
    RewriteStep step;
    step.done = state.Bool(0, 1);
    if (step.done) return step;
    TENURE_ASSIGN_OR_RETURN(const Result page,
                            tx.Run(found->statement, Params().Add(state.Int(0, 0)).Add(static_cast<int64_t>(limit))));
    step.done = page.rows() == 0 || page.IsNull(0, 0);
    if (!step.done) {
      step.rows_read = page.Int(0, 1);
      step.rows_rewritten = page.Int(0, 2);
    }
    Params params;
    params.Add(name).Add(step.done ? state.Int(0, 0) : page.Int(0, 0)).Add(step.rows_read).Add(step.rows_rewritten);
    params.Add(step.done);
    TENURE_RETURN_IF_ERROR(tx.RunAndCommit(sql::kAdvanceRewrite, params).status());
    Metrics::Add(metrics_.rewritten_rows, {{"rewrite", std::string(name)}}, static_cast<double>(step.rows_rewritten));
    return step;
  });
}

absl::Status PostgresStore::NoteRewriteError(const Fence& fence, std::string_view name, std::string_view error) {
  return RunOne("note_rewrite_error", sql::kNoteRewriteError,
                Params().Add(fence.worker).Add(fence.term).Add(name).Add(error))
      .status();
}

}  // namespace tenure::store::postgres
