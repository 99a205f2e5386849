// The cache of compiled code: one small file per graph (and per eager operator and shape), laid out like TorchNeuron's
// NEFF cache, <folder>/ab/cd/<32 hex>.neff. The files say in their first line that they are emulated.
#pragma once
#include "runtime.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace neuron_emu {

constexpr const char* kNeffHeader = "EMULATED NEFF: written by tests/neuron_emulator, runs on no Neuron device\n";

struct NeffCache {
  std::string folder;  // read once, at the import of torch: a variable set later comes too late
  bool enabled = true;
};
inline NeffCache neff_cache;

// 128 bits of FNV-1a (two 64-bit runs from different starts): enough for a cache that tests write.
inline std::string neff_key(const std::string& text) {
  std::array<uint64_t, 2> hash{0xcbf29ce484222325u, 0x84222325cbf29ce4u};
  for (const unsigned char byte : text)
    for (auto& half : hash) half = (half ^ byte) * 0x100000001b3u;
  std::array<char, 33> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx%016llx", static_cast<unsigned long long>(hash[0]),
                static_cast<unsigned long long>(hash[1] ^ (hash[1] >> 29)));
  return hex.data();
}

inline std::filesystem::path neff_path(const std::string& key) {
  return std::filesystem::path(neff_cache.folder) / key.substr(0, 2) / key.substr(2, 2) / (key + ".neff");
}

// Is this graph cached? A file that another program wrote is never taken for ours.
inline bool neff_find(const std::string& key) {
  if (!neff_cache.enabled) return false;
  std::ifstream file(neff_path(key));
  if (!file) return false;
  std::string first;
  std::getline(file, first);
  TORCH_CHECK(first + "\n" == kNeffHeader, "Invalid NEFF: ", neff_path(key).string(), " is not of the emulator");
  return true;
}

// Written beside its place and renamed, so that no reader sees half a file.
inline void neff_store(const std::string& key, const std::string& text) {
  if (!neff_cache.enabled) return;
  const auto path = neff_path(key);
  std::filesystem::create_directories(path.parent_path());
  auto beside = path;
  beside += "." + std::to_string(getpid()) + ".tmp";
  std::ofstream(beside) << kNeffHeader << text << "\n";
  std::filesystem::rename(beside, path);
}

}  // namespace neuron_emu
