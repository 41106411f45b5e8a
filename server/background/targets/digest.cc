// Hashes and signatures: see the header. Layer: background/targets.
#include "server/background/targets/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tenure::background::targets {
namespace {

constexpr std::string_view kPrefix = "whsec_";
using Digest = std::array<unsigned char, EVP_MAX_MD_SIZE>;

std::string Take(const Digest& digest, unsigned size) {
  std::string bytes(size, '\0');
  std::copy_n(digest.begin(), size, bytes.begin());
  return bytes;
}

const unsigned char* Bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string Sha256(std::string_view data) {
  Digest digest;
  unsigned size = 0;
  EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return Take(digest, size);
}

std::string HmacSha256(std::string_view key, std::string_view data) {
  Digest digest;
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(data), data.size(), digest.data(), &size);
  return Take(digest, size);
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

std::string Base64(std::string_view bytes) { return absl::Base64Escape(absl::string_view(bytes.data(), bytes.size())); }

std::string WebhookSignature(std::string_view secret, std::string_view id, int64_t unix_seconds,
                             std::string_view body) {
  std::string key(secret);
  if (secret.starts_with(kPrefix))
    absl::Base64Unescape(absl::string_view(secret.data(), secret.size()).substr(kPrefix.size()), &key);
  const std::string signed_text = absl::StrCat(absl::string_view(id.data(), id.size()), ".", unix_seconds, ".",
                                               absl::string_view(body.data(), body.size()));
  return absl::StrCat("v1,", Base64(HmacSha256(key, signed_text)));
}

}  // namespace tenure::background::targets
