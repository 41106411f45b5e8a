// The command line of tenured: serve, migrate, config, version. Layer: app. One call per process.
#pragma once

namespace tenure::app {

// Exit statuses: 0 done, 1 failed, 2 wrong usage or setting (nothing was touched).
int RunCommandLine(int argc, char** argv);

}  // namespace tenure::app
