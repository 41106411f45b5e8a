// What the commands print: aligned tables and fields for people, one JSON object a line (the proto's JSON mapping) for
// programs. Layer: client/cli. Not thread-safe: one thread prints.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"

namespace tenure::cli {

// A table whose columns are as wide as their widest cell. Long lists are printed page by page: the header appears once
// and columns only ever grow.
class Table {
 public:
  struct Column {
    std::string header;
    bool right_aligned = false;  // For numbers.
  };

  explicit Table(std::vector<Column> columns);

  // One cell for each column. An empty cell is shown as "-", so that columns can be cut and counted by scripts.
  void AddRow(std::vector<std::string> cells);
  // Prints the header (the first time, and only if there is a row) and the rows added since the last call.
  void Print(std::ostream& out);

 private:
  void PrintLine(std::ostream& out, const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
  bool header_printed_ = false;
};

// "name   value" lines; fields with an empty value are left out.
void PrintFields(std::ostream& out, const std::vector<std::pair<std::string, std::string>>& fields);

// The proto's JSON mapping on one line. Fields at their default value are written too, so that a program finds every
// key.
std::string ToJson(const google::protobuf::Message& message);

// ToJson and a line end.
void PrintJson(std::ostream& out, const google::protobuf::Message& message);

// Columns that `text` takes on a terminal, one for each UTF-8 character.
size_t DisplayWidth(const std::string& text);

}  // namespace tenure::cli
