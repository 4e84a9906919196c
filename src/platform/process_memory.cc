#include "platform/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "platform/small_file.h"

namespace sterling::platform {
namespace {

// "  1234 kB" → bytes.
std::optional<std::int64_t> kilobytes(std::string_view status, std::string_view key) {
  const auto value = line_value(status, key);
  if (!value) return std::nullopt;
  const auto words = split_words(*value);
  const auto number = words.size() == 2 && words[1] == "kB" ? parse_unsigned(words[0]) : std::nullopt;
  if (!number || *number > (std::uint64_t{1} << 52)) return std::nullopt;
  return static_cast<std::int64_t>(*number) * 1024;
}

}  // namespace

Expected<ProcessMemory> read_process_memory(const std::string& root) {
  const std::string path = root + (root.ends_with('/') ? "" : "/") + "proc/self/status";
  const std::string status = read_small_file(path).value_or(std::string());
  const auto resident = kilobytes(status, "VmRSS");
  const auto peak = kilobytes(status, "VmHWM");
  if (!resident || !peak) {
    return make_error(ErrorCode::kIo, path + ": has no VmRSS and VmHWM in kB, which tell this process' memory", path);
  }
  return ProcessMemory{*resident, *peak};
}

bool reset_peak_resident() {
  const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, "5", 1) == 1;
  close(fd);
  return written;
}

}  // namespace sterling::platform
