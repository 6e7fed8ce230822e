// Compiles toml++ into the extension module, for the reasons that format.cc has.
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
