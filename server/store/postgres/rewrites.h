// The registry of rewrites: which rows in an old form this release brings into the new one. Layer: store/postgres.
// Thread-safe.
//
// A rewrite is a statement. $1 is the key after which to begin, $2 how many rows to read; it reads them in the order of
// a bigint key, by an index; writes those that are in the old form, and only those, so that it is safe to repeat; and
// answers one row: the last key that was read (null: none was left), how many were read, how many were written. It
// locks what it writes with SKIP LOCKED only if somebody else will write the new form anyway. How to add one:
// docs/howto/add-a-rewrite.md.
#pragma once

#include <span>
#include <string_view>

namespace tenure::store::postgres {

struct Rewrite {
  std::string_view name;  // Never used for another one later: the table remembers it as done.
  std::string_view help;
  std::string_view statement;
};

// In the order in which they run. Empty: nothing that an earlier release wrote needs another form.
std::span<const Rewrite> AllRewrites();

}  // namespace tenure::store::postgres
