package main

// sysMemfdCreate is memfd_create(2), which package syscall does not have.
const sysMemfdCreate = 279
