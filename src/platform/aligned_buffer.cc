#include "platform/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace sterling::platform {
namespace {

// `bytes` rounded up to a multiple of `unit` (a power of two), or 0 when that overflows.
std::size_t round_up(std::size_t bytes, std::size_t unit) {
  if (bytes > std::numeric_limits<std::size_t>::max() - (unit - 1)) return 0;
  return (bytes + unit - 1) & ~(unit - 1);
}

Error no_memory(std::size_t bytes, std::string_view purpose) {
  return make_error(ErrorCode::kResourceExhausted,
                    "cannot allocate " + std::to_string(bytes) + " bytes for " + std::string(purpose) +
                        ": the system has no such memory",
                    std::string(purpose));
}

// An anonymous mapping of `bytes` (whole huge pages) that starts on a huge page boundary; null when there is none. The kernel
// aligns to 4 KiB only, so one huge page more is mapped and the ends are given back.
std::byte* map_aligned(std::size_t bytes) {
  const std::size_t unit = AlignedBuffer::kHugePageBytes;
  if (bytes > std::numeric_limits<std::size_t>::max() - unit) return nullptr;
  void* mapped = mmap(nullptr, bytes + unit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* base = static_cast<std::byte*>(mapped);
  const std::size_t misalignment = reinterpret_cast<std::uintptr_t>(base) & (unit - 1);
  const std::size_t head = misalignment == 0 ? 0 : unit - misalignment;
  if (head != 0) munmap(base, head);
  munmap(base + head + bytes, unit - head);
  // Advice: a kernel without transparent huge pages refuses it, and the memory is as good.
  (void)madvise(base + head, bytes, MADV_HUGEPAGE);
  return base + head;
}

}  // namespace

std::size_t AlignedBuffer::padded_bytes(std::size_t bytes) {
  return round_up(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kAlignment);
}

Expected<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes, std::string_view purpose) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const std::size_t rounded = padded_bytes(bytes);
  if (rounded == 0) return no_memory(bytes, purpose);
  if (bytes >= kHugePageBytes) {
    buffer.data_ = map_aligned(rounded);
  } else {
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (buffer.data_ != nullptr) std::memset(buffer.data_, 0, rounded);
  }
  if (buffer.data_ == nullptr) return no_memory(bytes, purpose);
  buffer.size_ = bytes;
  buffer.allocated_ = rounded;
  return buffer;
}

Error AlignedBuffer::too_large(std::size_t count, std::size_t element_size, std::string_view purpose) {
  return make_error(ErrorCode::kResourceExhausted,
                    "cannot allocate " + std::to_string(count) + " elements of " + std::to_string(element_size) +
                        " bytes for " + std::string(purpose) + ": the size overflows",
                    std::string(purpose));
}

void AlignedBuffer::swap(AlignedBuffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(allocated_, other.allocated_);
}

void AlignedBuffer::release() {
  if (data_ == nullptr) return;
  if (size_ >= kHugePageBytes) {
    munmap(data_, allocated_);
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  size_ = 0;
  allocated_ = 0;
}

}  // namespace sterling::platform
