#include "hub/blob_download.h"

#include <algorithm>

namespace sterling::hub {

void BlobDownload::start(BlobFile file) {
  const std::lock_guard lock(mutex_);
  next_ = file.written();
  position_ += next_;
  file_.emplace(std::move(file));
  handed_out_all_ = false;
}

std::shared_ptr<Part> BlobDownload::claim(bool may_park) {
  const std::lock_guard lock(mutex_);
  if (!file_ || handed_out_all_ || (!parts_.empty() && (!may_park || !ranges_))) return nullptr;
  auto part = std::make_shared<Part>();
  part->begin = next_;
  part->end = wanted_.size;
  // A remainder of less than two parts is not worth a second connection.
  if (ranges_ && wanted_.size && *wanted_.size - next_ >= 2 * part_bytes_) part->end = next_ + part_bytes_;
  handed_out_all_ = part->end == wanted_.size;
  next_ = part->end.value_or(next_);
  parts_.push_back(part);
  return part;
}

Status BlobDownload::write_parked(Part& part) {
  Status status = file_->append(part.parked);
  part.parked = std::string();  // gives the memory back, clear() would not
  return status;
}

Status BlobDownload::receive(Part& part, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (part.dropped) return make_error(ErrorCode::kCancelled, "part dropped");
  part.received += static_cast<std::int64_t>(bytes.size());
  position_ += static_cast<std::int64_t>(bytes.size());
  if (parts_.front().get() != &part) {
    // All at once: growing by doubling would take up to twice the memory that was promised.
    if (part.parked.empty() && part.end) part.parked.reserve(static_cast<std::size_t>(*part.end - part.begin));
    part.parked.append(bytes);
    return {};
  }
  if (!part.parked.empty()) {
    if (Status status = write_parked(part); !status) return status;
  }
  return file_->append(bytes);
}

Expected<bool> BlobDownload::complete(const std::shared_ptr<Part>& part) {
  const std::lock_guard lock(mutex_);
  if (part->dropped) return false;
  part->done = true;
  while (!parts_.empty() && parts_.front()->done) {
    if (Status status = write_parked(*parts_.front()); !status) return status.error();
    parts_.pop_front();
  }
  // What waits behind goes to disk now: its worker may be slow, and a kill would lose it.
  if (!parts_.empty() && !parts_.front()->parked.empty()) {
    if (Status status = write_parked(*parts_.front()); !status) return status.error();
  }
  return parts_.empty() && handed_out_all_;
}

void BlobDownload::give_up_ranges() {
  const std::lock_guard lock(mutex_);
  ranges_ = false;
  for (const auto& part : parts_) {
    part->dropped = true;
    // Of the first part everything is in the file; of the others nothing.
    if (part != parts_.front()) position_ -= part->received;
  }
  parts_.clear();
  next_ = file_->written();
  handed_out_all_ = false;
}

Status BlobDownload::restart() {
  const std::lock_guard lock(mutex_);
  position_ -= file_->written();
  next_ = 0;
  handed_out_all_ = false;
  location_.clear();
  return file_->restart();
}

int BlobDownload::open_parts() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(parts_.size());
}

std::string BlobDownload::location() const {
  const std::lock_guard lock(mutex_);
  return location_;
}

void BlobDownload::set_location(std::string url) {
  const std::lock_guard lock(mutex_);
  location_ = std::move(url);
}

}  // namespace sterling::hub
