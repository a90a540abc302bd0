/* What the provider takes from rdma-core. */
#include <infiniband/driver.h>
#include <rdma/rdma_user_ioctl_cmds.h>
