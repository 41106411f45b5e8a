// An HTTP client that sends exactly the bytes that it is given, so that tests can be rude, slow and incomplete.
// Blocking; every wait ends after 20 s, and the test that waited fails. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tenure::testing {

struct RawReply {
  int status = 0;                              // 0: the connection ended before a whole reply.
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string body;
};

class RawHttp {
 public:
  // Connects to an IPv4 or IPv6 address.
  explicit RawHttp(uint16_t port, const std::string& address = "127.0.0.1");
  ~RawHttp();
  RawHttp(const RawHttp&) = delete;
  RawHttp& operator=(const RawHttp&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False if the other side does not take it.
  bool Send(std::string_view bytes);
  // A whole request of HTTP/1.1 with Host and, if there is a body, Content-Length. `headers` are lines that end in
  // \r\n.
  bool SendRequest(std::string_view method, std::string_view target, std::string_view headers = "",
                   std::string_view body = "");
  // The next reply. `without_body`: of a HEAD request.
  RawReply Read(bool without_body = false);
  RawReply Get(std::string_view target, std::string_view headers = "");
  RawReply Post(std::string_view target, std::string_view headers, std::string_view body);

  // Whether the other side closes now without sending another byte.
  bool ClosedByPeer();
  void ShutdownSend();  // Half close: nothing more to say, still listening.
  void Close();
  void Reset();  // Closes with a TCP reset, as a killed process with unread data does.

 private:
  bool Fill();  // Receives more; false at the end.

  int fd_ = -1;
  bool timed_out_ = false;
  std::string buffer_;
};

}  // namespace tenure::testing
