// Tables, fields and JSON. Layer: client/cli. Not thread-safe.
#include "client/cli/output.h"

#include <algorithm>
#include <ostream>

#include "google/protobuf/util/json_util.h"

namespace tenure::cli {

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  widths_.reserve(columns_.size());
  for (const Column& column : columns_) widths_.push_back(DisplayWidth(column.header));
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) cells[i].push_back('-');
    widths_[i] = std::max(widths_[i], DisplayWidth(cells[i]));
  }
  rows_.push_back(std::move(cells));
}

void Table::Print(std::ostream& out) {
  if (rows_.empty()) return;
  if (!header_printed_) {
    std::vector<std::string> header;
    header.reserve(columns_.size());
    for (const Column& column : columns_) header.push_back(column.header);
    PrintLine(out, header);
    header_printed_ = true;
  }
  for (const std::vector<std::string>& row : rows_) PrintLine(out, row);
  rows_.clear();
}

void Table::PrintLine(std::ostream& out, const std::vector<std::string>& cells) const {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    const std::string padding(widths_[i] - DisplayWidth(cells[i]), ' ');
    if (columns_[i].right_aligned) {
      line += padding;
      line += cells[i];
    } else {
      line += cells[i];
      // No blanks at the end of a line: they are in the way when it is copied.
      if (i + 1 < cells.size()) line += padding;
    }
  }
  out << line << '\n';
}

void PrintFields(std::ostream& out, const std::vector<std::pair<std::string, std::string>>& fields) {
  size_t width = 0;
  for (const auto& [name, value] : fields) {
    if (!value.empty()) width = std::max(width, name.size());
  }
  for (const auto& [name, value] : fields) {
    if (!value.empty()) out << "  " << name << std::string(width - name.size() + 2, ' ') << value << '\n';
  }
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  // Fails only for an Any of an unknown type or a time out of range, neither of which the daemon sends; still never
  // silently.
  if (!status.ok()) return "{\"error\":\"this message has no JSON form\"}";
  return json;
}

void PrintJson(std::ostream& out, const google::protobuf::Message& message) { out << ToJson(message) << '\n'; }

size_t DisplayWidth(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace tenure::cli
