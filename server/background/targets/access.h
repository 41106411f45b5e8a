// What the daemon's operator allows to targets, which everyone who may call the API can make. Layer:
// background/targets. Values only; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/background/targets/aws_signer.h"
#include "server/store/targets.h"

namespace tenure::background::targets {

struct Access {
  bool allow_private = false;  // Addresses that are not public.
  std::string directory;       // Below which file:// targets may write; empty: nowhere.
  AwsCredentials aws;          // Of SQS and S3.
};

// Whether a target may be made: INVALID_ARGUMENT naming `url` if it is a directory that no daemon with this access
// could write to. By the names alone: links are followed, and looked at again, when it is written. Settings that are
// wrong in themselves are not its business.
absl::Status CheckAccess(const store::TargetSettings& settings, const Access& access);

}  // namespace tenure::background::targets
