// Hashes and signatures of what is sent to targets, by OpenSSL. Layer: background/targets, the only place that knows
// OpenSSL. Thread-safe: functions of values.
#pragma once

#include <string>
#include <string_view>

namespace tenure::background::targets {

std::string Sha256(std::string_view data);                            // 32 bytes.
std::string HmacSha256(std::string_view key, std::string_view data);  // 32 bytes.
std::string Hex(std::string_view bytes);
std::string Base64(std::string_view bytes);

// The value of a webhook's signature header, "v1,<base64>", over "<id>.<unix seconds>.<body>", as the Standard Webhooks
// specification has it. `secret` that begins with whsec_ is the base64 of the key.
std::string WebhookSignature(std::string_view secret, std::string_view id, int64_t unix_seconds, std::string_view body);

}  // namespace tenure::background::targets
