// The version, which the build defines for this file alone, so that a release rebuilds no other. Layer: app.
#include "server/app/version.h"

namespace tenure::app {

std::string_view Version() { return TENURE_VERSION; }

}  // namespace tenure::app
