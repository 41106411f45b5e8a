// What the daemon's operator allows to targets, which everyone who may call the API can make. Layer:
// background/targets. Values only.
#pragma once

#include <string>

#include "server/background/targets/aws_signer.h"

namespace tenure::background::targets {

struct Access {
  bool allow_private = false;  // Addresses that are not public.
  std::string directory;       // Below which file:// targets may write; empty: nowhere.
  AwsCredentials aws;          // Of SQS and S3.
};

}  // namespace tenure::background::targets
