// What an audit has finished so far, in a file that survives being killed: one record per choice and prompt, appended and flushed when it is done. A record
// that was cut off is dropped when the file is opened again. Bytes are this machine's own; the file isn't for others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "lab/audit_report.h"

namespace sterling::lab {

class AuditState {
 public:
  // `key` names everything that the numbers depend on. A file with another key: kInvalidArgument, untouched.
  static Expected<AuditState> open(const std::string& path, const std::string& key);
  AuditState(AuditState&& other) noexcept;
  AuditState& operator=(AuditState&&) = delete;
  ~AuditState();

  // Null: not finished.
  const PromptCost* find(std::int32_t choice, std::int32_t prompt) const;
  std::size_t finished() const { return records_.size(); }
  // On disk when it returns.
  Status append(std::int32_t choice, std::int32_t prompt, PromptCost cost);

 private:
  AuditState(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Status load(const std::string& key);

  std::string path_;
  int file_ = -1;
  std::map<std::pair<std::int32_t, std::int32_t>, PromptCost> records_;
};

}  // namespace sterling::lab
