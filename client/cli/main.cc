// tenurectl, the command line of Tenure. Layer: client/cli.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "client/cli/app.h"

int main(int argc, char** argv) {
  // gRPC writes its own account of failures to stderr; ours says more to the reader. Whoever sets the variable still
  // gets it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::ios::sync_with_stdio(false);
  const tenure::cli::Streams streams{std::cin,
                                     std::cout,
                                     std::cerr,
                                     isatty(STDIN_FILENO) == 1,
                                     isatty(STDOUT_FILENO) == 1,
                                     isatty(STDERR_FILENO) == 1};
  return tenure::cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), streams);
}
