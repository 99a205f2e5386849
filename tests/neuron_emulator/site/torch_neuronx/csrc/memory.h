// "Device memory": host bytes, counted per device and limited to the size of a core's memory.
#pragma once
#include "runtime.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <cstdio>

namespace neuron_emu {

struct Counter {
  std::atomic<int64_t> current{0}, peak{0}, allocations{0}, frees{0}, ooms{0};
};
inline std::array<Counter, kMaxDevices + 1> counters;
inline std::atomic<int64_t> core_bytes{int64_t(24) << 30};  // set once from Python

struct Block {
  size_t size;
  DeviceIndex device;
  c10::DataPtr host;
};

inline void free_block(void* pointer) {
  auto* block = static_cast<Block*>(pointer);
  counters[block->device].current -= block->size;
  ++counters[block->device].frees;
  delete block;
}

struct NeuronAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    const auto device = check_index(current_device());
    auto& counter = counters[device];
    const int64_t now = counter.current += size;
    if (now > core_bytes) refuse(counter, size);
    ++counter.allocations;
    for (int64_t peak = counter.peak; now > peak && !counter.peak.compare_exchange_weak(peak, now);) {
    }
    auto* block = new Block{size, device, c10::GetAllocator(at::kCPU)->allocate(size)};
    return {block->host.get(), block, &free_block, c10::Device(kNeuron, device)};
  }

  // The real runtime logs the first line and raises the second.
  [[noreturn]] static void refuse(Counter& counter, size_t size) {
    counter.current -= size;
    ++counter.ooms;
    std::fprintf(stderr, "Neuron OOM: requested_size=%zu in_use=%lld total_hbm=%lld (emulated)\n", size,
                 static_cast<long long>(counter.current), static_cast<long long>(core_bytes));
    TORCH_CHECK(false, "NRT allocation failed for size ", size, " (OOM)");
  }

  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override { default_copy_data(to, from, size); }

  // c10::DeviceAllocator: what torch.accelerator.memory_* and torch.neuron.memory_* read
  bool initialized() override { return runtime.started; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto& counter = counters[check_index(device)];
    for (auto* kind : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& total = (*kind)[0];
      total.current = counter.current;
      total.peak = counter.peak;
    }
    stats.num_device_alloc = counter.allocations;
    stats.num_device_free = counter.frees;
    stats.num_ooms = counter.ooms;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    auto& counter = counters[check_index(device)];
    counter.allocations = counter.frees = counter.ooms = 0;
  }
  void resetPeakStats(DeviceIndex device) override {
    auto& counter = counters[check_index(device)];
    counter.peak = counter.current.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    const size_t total = core_bytes;
    return {total - counters[check_index(device)].current, total};
  }
};
inline NeuronAllocator allocator;

}  // namespace neuron_emu
