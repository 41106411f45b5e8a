// The daemon's version. Layer: app. Thread-safe.
#pragma once

#include <string_view>

namespace tenure::app {

std::string_view Version();

}  // namespace tenure::app
