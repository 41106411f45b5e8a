#include "tests/support/pgbouncer.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

#include "tests/support/eventually.h"

namespace tenure::testing {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "pgbouncer for the tests: %s\n", why.c_str());
  std::abort();
}

std::map<std::string, std::string> Parse(const std::string& url) {
  char* error = nullptr;
  PQconninfoOption* options = PQconninfoParse(url.c_str(), &error);
  if (options == nullptr) Die("cannot parse " + url + ": " + (error != nullptr ? error : ""));
  std::map<std::string, std::string> parsed;
  for (PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    if (option->val != nullptr) parsed[option->keyword] = option->val;
  }
  PQconninfoFree(options);
  return parsed;
}

// Returns the directory of its socket.
std::string Start(const std::map<std::string, std::string>& server) {
  char directory[] = "/tmp/tenure-pooler-XXXXXX";
  if (mkdtemp(directory) == nullptr) Die("cannot make a directory");
  const std::string dir = directory;
  const std::string ini = dir + "/pgbouncer.ini";
  {
    std::ofstream out(ini);
    out << "[databases]\n* = host=" << server.at("host") << " port=" << server.at("port")
        << " user=" << server.at("user") << "\n"
        << "[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = " << dir << "\nauth_type = any\n"
        << "pool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = 40\nlogfile = " << dir << "/log\n"
        << "pidfile = " << dir << "/pid\n";
  }
  const passwd* other = getuid() == 0 ? getpwnam("postgres") : nullptr;
  if (other != nullptr) {
    if (chown(directory, other->pw_uid, other->pw_gid) != 0 || chown(ini.c_str(), other->pw_uid, other->pw_gid) != 0) {
      Die("cannot hand the directory to postgres");
    }
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // Ends with the tests, whatever ends them. Set after the change of user, which clears it.
    if (other != nullptr && (setgid(other->pw_gid) != 0 || setuid(other->pw_uid) != 0)) _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    execlp("pgbouncer", "pgbouncer", "-q", ini.c_str(), nullptr);
    // Where Debian has it, which is not on an ordinary user's path.
    execl("/usr/sbin/pgbouncer", "pgbouncer", "-q", ini.c_str(), nullptr);
    _exit(127);
  }
  static std::string cleanup;
  cleanup = dir;
  static pid_t pooler;
  pooler = child;
  std::atexit([] {
    kill(pooler, SIGKILL);
    waitpid(pooler, nullptr, 0);
    const std::string remove = "rm -rf '" + cleanup + "'";
    if (std::system(remove.c_str()) != 0) std::fprintf(stderr, "could not remove %s\n", cleanup.c_str());
  });
  return dir;
}

}  // namespace

bool ThroughPooler() {
  const char* set = std::getenv("TENURE_TEST_POOLER");
  return set != nullptr && *set != '\0' && *set != '0';
}

std::string PooledUrl(const std::string& direct_url) {
  std::map<std::string, std::string> server = Parse(direct_url);
  if (server["port"].empty()) server["port"] = "5432";
  static std::mutex mu;
  static std::string directory;
  std::lock_guard<std::mutex> lock(mu);
  const bool fresh = directory.empty();
  if (fresh) directory = Start(server);
  const std::string url = "host=" + directory + " port=6432 user=" + server["user"] + " dbname=" + server["dbname"];
  // libpq's own answer says when it listens.
  if (fresh && !Eventually(5, [&] { return PQping(url.c_str()) == PQPING_OK; })) {
    Die("does not answer; is the package pgbouncer installed?");
  }
  return url;
}

}  // namespace tenure::testing
