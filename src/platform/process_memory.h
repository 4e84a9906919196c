// What this process has in memory, as the kernel counts it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace sterling::platform {

// Bytes. Pages of mapped files count while they are mapped in.
struct ProcessMemory {
  std::int64_t resident = 0;       // now
  std::int64_t peak_resident = 0;  // at most, since the start or the last reset_peak()
};

// From /proc/self/status (VmRSS, VmHWM), not getrusage(), whose peak includes the program that started this one. kIo: not there.
// `root` stands for "/".
Expected<ProcessMemory> read_process_memory(const std::string& root = "/");

// The peak starts anew at what is resident now. False where the kernel does not let us.
bool reset_peak_resident();

}  // namespace sterling::platform
