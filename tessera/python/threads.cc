// Debian's archives of C++ libraries are made for programs: they reach this flag of glibc, which says that a process has one
// thread only, in a way that a shared object cannot. So the extension module has a flag of its own. It says no: a command
// runs on a thread beside Python's.
extern "C" {
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;
}
