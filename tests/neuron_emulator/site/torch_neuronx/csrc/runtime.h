// The emulated Neuron runtime: which cores this process owns, when it started, which device indices are legal.
//
// The rules are those of TorchNeuron:
// - Nothing is taken until the first use of the device. Then the process owns the cores that
//   NEURON_RT_VISIBLE_CORES names ("3", "0-3", "0,2"), else the first NEURON_RT_NUM_CORES, else every core.
// - Without a process group the device indices are 0 .. owned cores - 1.
// - In a process group a process owns one core, and its index is LOCAL_RANK; no other index is legal.
// - After the start, a forked child may not use the device.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

namespace neuron_emu {

using c10::DeviceIndex;
constexpr auto kNeuron = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 127;  // the largest index that c10::DeviceIndex holds

inline std::string env(const char* name, const char* otherwise = "") {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

// Is `name` among the comma separated NEURON_EMU_FAULT (an argument after ':' is left out), for this rank?
inline bool has_fault(const std::string& name) {
  const auto rank = env("NEURON_EMU_FAULT_RANK");
  if (!rank.empty() && rank != env("RANK", "0")) return false;
  const auto all = "," + env("NEURON_EMU_FAULT") + ",";
  return all.find("," + name + ",") != std::string::npos || all.find("," + name + ":") != std::string::npos;
}

// ---------------------------------------------------------------- cores
inline int core_number(const std::string& text) {
  const bool digits = !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == std::string::npos;
  TORCH_CHECK(digits, "Failed to parse NEURON_RT_VISIBLE_CORES: '", text, "' is not a core");
  return std::stoi(text);
}

// "3" -> {3}, "0-3" -> {0, 1, 2, 3}, "0,2,5-6" -> {0, 2, 5, 6}
inline std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> cores;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    const auto dash = part.find('-');
    const int first = core_number(part.substr(0, dash));
    const int last = dash == std::string::npos ? first : core_number(part.substr(dash + 1));
    TORCH_CHECK(first <= last, "Failed to parse NEURON_RT_VISIBLE_CORES: '", part, "' runs backwards");
    for (int core = first; core <= last; ++core) cores.push_back(core);
    begin = end + 1;
  }
  return cores;
}

inline int machine_cores() { return std::atoi(env("NEURON_EMU_CORES", "4").c_str()); }

inline std::vector<int> visible_cores() {
  if (const auto named = env("NEURON_RT_VISIBLE_CORES"); !named.empty()) return parse_cores(named);
  const int wanted = std::atoi(env("NEURON_RT_NUM_CORES", "0").c_str());
  std::vector<int> cores;
  for (int core = 0; core < (wanted ? wanted : machine_cores()); ++core) cores.push_back(core);
  return cores;
}

// A core belongs to one process at a time. NEURON_EMU_MACHINE names the folder that stands for the machine; without
// it, cores are not reserved. The kernel frees the lock when the process dies, however it dies.
inline bool reserve_core(int core) {
  const auto machine = env("NEURON_EMU_MACHINE");
  if (machine.empty()) return true;
  const int file = open((machine + "/core-" + std::to_string(core)).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  TORCH_CHECK(file >= 0, "NEURON_EMU_MACHINE=", machine, " is not a writable folder");
  return flock(file, LOCK_EX | LOCK_NB) == 0;  // the file stays open as long as the process lives
}

// ---------------------------------------------------------------- state of this process
struct Runtime {
  std::mutex mutex;
  std::atomic<bool> started{false};
  std::atomic<bool> forked{false};  // this process is a fork of one that had started the runtime
  std::atomic<bool> in_group{false};
  DeviceIndex own_index = 0;     // in a group: LOCAL_RANK
  DeviceIndex device_count = 0;  // in a group: LOCAL_WORLD_SIZE; else the owned cores
};
inline Runtime runtime;
inline thread_local DeviceIndex chosen_device = -1;  // -1: this thread has chosen none

inline void after_fork_in_child() {
  if (!runtime.started) return;
  runtime.started = false;
  runtime.forked = true;
}

// Takes the cores, at the first use of the device.
inline void start() {
  if (runtime.started) return;
  const std::lock_guard<std::mutex> lock(runtime.mutex);
  if (runtime.started) return;
  TORCH_CHECK(!runtime.forked, "Cannot re-initialize Neuron runtime in forked subprocess. "
              "To use Neuron with multiprocessing, use the 'spawn' start method");
  const auto cores = visible_cores();
  TORCH_CHECK(int(cores.size()) <= kMaxDevices, cores.size(), " visible cores are more than a process can have");
  for (const int core : cores) {
    const bool free = core < machine_cores() && !has_fault("busy") && reserve_core(core);
    TORCH_CHECK(free, "Logical Neuron Core(s) not available - Requested:", env("NEURON_RT_VISIBLE_CORES", "all"),
                " Available:0; NeuronCore(s) not available - Requested:", cores.size(), " (emulated core ", core,
                " of ", machine_cores(), " is ", core < machine_cores() ? "in use" : "not there", ")");
  }
  runtime.device_count = DeviceIndex(cores.size());
  pthread_atfork(nullptr, nullptr, &after_fork_in_child);
  runtime.started = true;
}

inline void join_group(int64_t local_rank, int64_t local_world_size) {
  runtime.own_index = DeviceIndex(local_rank);
  runtime.device_count = DeviceIndex(local_world_size);
  runtime.in_group = true;
}

inline DeviceIndex device_count() {
  return runtime.started ? runtime.device_count : DeviceIndex(std::min<size_t>(visible_cores().size(), kMaxDevices));
}

inline DeviceIndex current_device() {
  if (chosen_device >= 0) return chosen_device;
  return runtime.in_group ? runtime.own_index : DeviceIndex(0);
}

// Every use of a device comes through here.
inline DeviceIndex check_index(DeviceIndex index) {
  start();
  const bool legal = runtime.in_group ? index == runtime.own_index : index >= 0 && index < runtime.device_count;
  TORCH_CHECK(legal, "Device index ", int(index), " is out of range (emulated: ",
              runtime.in_group ? "in a process group only LOCAL_RANK is legal, " : "visible cores are counted from 0, ",
              runtime.in_group ? int(runtime.own_index) : int(runtime.device_count), ")");
  return index;
}

}  // namespace neuron_emu
