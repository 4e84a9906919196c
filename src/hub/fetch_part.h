// Brings one part of a blob: the requests, their failures and their second attempts.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "hub/blob_download.h"
#include "hub/client.h"

namespace sterling::hub {

enum class PartResult {
  kArrived,
  kDropped,  // the part is not wanted any more (BlobDownload::give_up_ranges)
};

// `url` is the hub's address of the file; `what` names it in messages.
Expected<PartResult> fetch_part(Client& client, HttpSession& session, BlobDownload& download, Part& part,
                                const std::string& url, const std::string& what);

}  // namespace sterling::hub
