// tenured, the daemon of Tenure. Layer: app.
#include "server/app/command_line.h"

int main(int argc, char** argv) { return tenure::app::RunCommandLine(argc, argv); }
