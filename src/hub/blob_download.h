// One blob on its way: which parts are asked for, which have come, and their order. Parts may arrive out of order from several
// workers; they reach the file in order, so that it is a true beginning at every moment and the hash runs along. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/blob_file.h"

namespace sterling::hub {

// What shall arrive.
struct WantedBlob {
  std::string blob;  // name in blobs/
  std::optional<std::int64_t> size;
  std::string hash;                // to be checked against; may be empty
  std::vector<std::string> paths;  // in the repository, all with these bytes; the first is asked for
};

// A part [begin, end) of the file. One worker at a time has it.
struct Part {
  std::int64_t begin = 0;
  std::optional<std::int64_t> end;  // none: to wherever the file ends
  std::string parked;               // bytes that wait for earlier parts
  std::int64_t received = 0;
  bool done = false;
  std::atomic<bool> dropped = false;  // not wanted any more: the server knows no ranges

  std::int64_t position() const { return begin + received; }
};

class BlobDownload {
 public:
  // `position` follows the bytes that this process has of the file, for progress.
  BlobDownload(WantedBlob wanted, std::int64_t part_bytes, std::atomic<std::int64_t>& position)
      : wanted_(std::move(wanted)), part_bytes_(part_bytes), position_(position) {}

  const WantedBlob& wanted() const { return wanted_; }

  void start(BlobFile file);
  bool started() const { return file_.has_value(); }  // for whoever has the job alone

  // The next part that nobody has; nullptr when there is none, or when it would be parked and `may_park` is false.
  std::shared_ptr<Part> claim(bool may_park);
  Status receive(Part& part, std::string_view bytes);
  // The part has all its bytes. `end` is the file's size when the hub never told it. True: the whole file has arrived.
  Expected<bool> complete(const std::shared_ptr<Part>& part);

  // The server answered a range with the whole file: from now on one request at a time, and what came out of order is forgotten.
  void give_up_ranges();
  bool ranges() const { return ranges_; }

  // Throws everything away, to start again.
  Status restart();
  BlobFile& file() { return *file_; }  // for whoever saw the last part complete

  // Parts that are in somebody's hands or parked.
  int open_parts() const;

  // Where the bytes were found last, behind redirects that would otherwise be walked for every part.
  std::string location() const;
  void set_location(std::string url);

 private:
  Status write_parked(Part& part);

  const WantedBlob wanted_;
  const std::int64_t part_bytes_;
  std::atomic<std::int64_t>& position_;
  std::atomic<bool> ranges_ = true;
  mutable std::mutex mutex_;
  std::optional<BlobFile> file_;
  std::int64_t next_ = 0;  // beginning of the next part to hand out
  bool handed_out_all_ = false;
  std::deque<std::shared_ptr<Part>>
      parts_;  // handed out and not written to their end; in order, the first is written through
  std::string location_;
};

}  // namespace sterling::hub
