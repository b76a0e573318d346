// A cluster of TiKV for tests: each process is the PD server, or one store.
//
// It is mocktikv of client-go, with its transactions in goleveldb, behind the protocol of TiKV. There is no
// raft, there are no replicas, and no writes are synced. Two answers that mocktikv leaves incomplete are
// completed.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	rpc "github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikvrpc"
	pd "github.com/tikv/pd/client"
	"google.golang.org/grpc"
)

type store struct {
	tikvpb.UnimplementedTikvServer
	client *testutils.MockClient
	addr   string
}

func call[T any](s *store, x context.Context, kind tikvrpc.CmdType, ask interface{}, in *rpc.Context) (T, error) {
	var none T
	var region rpc.Context
	if in != nil {
		region = *in
	}
	response, err := s.client.SendRequest(x, s.addr, tikvrpc.NewRequest(kind, ask, region), 10*time.Second)
	if err != nil {
		return none, err
	}
	return response.Resp.(T), nil
}

func (s *store) KvGet(x context.Context, r *rpc.GetRequest) (*rpc.GetResponse, error) {
	p, err := call[*rpc.GetResponse](s, x, tikvrpc.CmdGet, r, r.Context)
	if err == nil && p.RegionError == nil && p.Error == nil && len(p.Value) == 0 {
		p.NotFound = true // mocktikv leaves it out
	}
	return p, err
}

func (s *store) KvScan(x context.Context, r *rpc.ScanRequest) (*rpc.ScanResponse, error) {
	return call[*rpc.ScanResponse](s, x, tikvrpc.CmdScan, r, r.Context)
}

func (s *store) KvPrewrite(x context.Context, r *rpc.PrewriteRequest) (*rpc.PrewriteResponse, error) {
	return call[*rpc.PrewriteResponse](s, x, tikvrpc.CmdPrewrite, r, r.Context)
}

func (s *store) KvCommit(x context.Context, r *rpc.CommitRequest) (*rpc.CommitResponse, error) {
	return call[*rpc.CommitResponse](s, x, tikvrpc.CmdCommit, r, r.Context)
}

func (s *store) KvBatchGet(x context.Context, r *rpc.BatchGetRequest) (*rpc.BatchGetResponse, error) {
	return call[*rpc.BatchGetResponse](s, x, tikvrpc.CmdBatchGet, r, r.Context)
}

func (s *store) KvBatchRollback(x context.Context, r *rpc.BatchRollbackRequest) (*rpc.BatchRollbackResponse, error) {
	return call[*rpc.BatchRollbackResponse](s, x, tikvrpc.CmdBatchRollback, r, r.Context)
}

func (s *store) KvCleanup(x context.Context, r *rpc.CleanupRequest) (*rpc.CleanupResponse, error) {
	return call[*rpc.CleanupResponse](s, x, tikvrpc.CmdCleanup, r, r.Context)
}

func (s *store) KvPessimisticLock(x context.Context, r *rpc.PessimisticLockRequest) (*rpc.PessimisticLockResponse, error) {
	return call[*rpc.PessimisticLockResponse](s, x, tikvrpc.CmdPessimisticLock, r, r.Context)
}

func (s *store) KVPessimisticRollback(x context.Context, r *rpc.PessimisticRollbackRequest) (*rpc.PessimisticRollbackResponse, error) {
	return call[*rpc.PessimisticRollbackResponse](s, x, tikvrpc.CmdPessimisticRollback, r, r.Context)
}

func (s *store) KvCheckTxnStatus(x context.Context, r *rpc.CheckTxnStatusRequest) (*rpc.CheckTxnStatusResponse, error) {
	p, err := call[*rpc.CheckTxnStatusResponse](s, x, tikvrpc.CmdCheckTxnStatus, r, r.Context)
	if err == nil && p.LockTtl > 0 && p.LockInfo == nil {
		// mocktikv leaves it out; without it tikv-client 0.4 panics
		p.LockInfo = &rpc.LockInfo{
			PrimaryLock: r.PrimaryKey, Key: r.PrimaryKey, LockVersion: r.LockTs, LockTtl: p.LockTtl,
		}
	}
	return p, err
}

func (s *store) KvTxnHeartBeat(x context.Context, r *rpc.TxnHeartBeatRequest) (*rpc.TxnHeartBeatResponse, error) {
	return call[*rpc.TxnHeartBeatResponse](s, x, tikvrpc.CmdTxnHeartBeat, r, r.Context)
}

func (s *store) KvResolveLock(x context.Context, r *rpc.ResolveLockRequest) (*rpc.ResolveLockResponse, error) {
	return call[*rpc.ResolveLockResponse](s, x, tikvrpc.CmdResolveLock, r, r.Context)
}

func (s *store) KvScanLock(x context.Context, r *rpc.ScanLockRequest) (*rpc.ScanLockResponse, error) {
	return call[*rpc.ScanLockResponse](s, x, tikvrpc.CmdScanLock, r, r.Context)
}

// placement is the PD server. All processes make the same regions, so it need not hear from the stores.
type placement struct {
	pdpb.UnimplementedPDServer
	client pd.Client
	addr   string
}

func header() *pdpb.ResponseHeader { return &pdpb.ResponseHeader{ClusterId: 1} }

func (s *placement) GetMembers(context.Context, *pdpb.GetMembersRequest) (*pdpb.GetMembersResponse, error) {
	urls := []string{"http://" + s.addr}
	m := &pdpb.Member{Name: "pd", MemberId: 1, PeerUrls: urls, ClientUrls: urls}
	return &pdpb.GetMembersResponse{Header: header(), Members: []*pdpb.Member{m}, Leader: m, EtcdLeader: m}, nil
}

func (s *placement) Tso(t pdpb.PD_TsoServer) error {
	for {
		r, err := t.Recv()
		if err != nil {
			return err
		}
		var p, l int64
		for i := uint32(0); i < r.Count; i++ {
			p, l, _ = s.client.GetTS(context.Background())
		}
		last := &pdpb.Timestamp{Physical: p, Logical: l}
		if err := t.Send(&pdpb.TsoResponse{Header: header(), Count: r.Count, Timestamp: last}); err != nil {
			return err
		}
	}
}

func (s *placement) GetRegion(x context.Context, r *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	g, err := s.client.GetRegion(x, r.RegionKey)
	if err != nil {
		return nil, err
	}
	return &pdpb.GetRegionResponse{Header: header(), Region: g.Meta, Leader: g.Leader}, nil
}

func (s *placement) GetRegionByID(x context.Context, r *pdpb.GetRegionByIDRequest) (*pdpb.GetRegionResponse, error) {
	g, err := s.client.GetRegionByID(x, r.RegionId)
	if err != nil {
		return nil, err
	}
	return &pdpb.GetRegionResponse{Header: header(), Region: g.Meta, Leader: g.Leader}, nil
}

func (s *placement) GetStore(x context.Context, r *pdpb.GetStoreRequest) (*pdpb.GetStoreResponse, error) {
	st, err := s.client.GetStore(x, r.StoreId)
	return &pdpb.GetStoreResponse{Header: header(), Store: st}, err
}

func (s *placement) GetAllStores(x context.Context, r *pdpb.GetAllStoresRequest) (*pdpb.GetAllStoresResponse, error) {
	st, err := s.client.GetAllStores(x)
	return &pdpb.GetAllStoresResponse{Header: header(), Stores: st}, err
}

func (s *placement) UpdateGCSafePoint(x context.Context, r *pdpb.UpdateGCSafePointRequest) (*pdpb.UpdateGCSafePointResponse, error) {
	point, err := s.client.UpdateGCSafePoint(x, r.SafePoint)
	return &pdpb.UpdateGCSafePointResponse{Header: header(), NewSafePoint: point}, err
}

// splits returns where regions begin: within each of the first spaces of esker-kv at g and at p.
func splits() [][]byte {
	var keys [][]byte
	for space := byte(0); space < 40; space++ {
		keys = append(keys, []byte{1, 0, 0, 0, space, 'g'}, []byte{1, 0, 0, 0, space, 'p'})
	}
	return keys
}

// layOut makes the regions. They are on the stores in turn.
func layOut(cluster *testutils.MockCluster, addresses []string) {
	for i, address := range addresses {
		cluster.AddStore(uint64(i+1), address)
	}
	const region, peer, moved = 1000, 2000, 3000
	cluster.Bootstrap(region, []uint64{1}, []uint64{peer}, peer)
	keys := splits()
	for i, key := range keys {
		n := uint64(i)
		cluster.Split(region+n, region+n+1, key, []uint64{peer + n + 1}, peer+n+1)
	}
	for n := uint64(1); n <= uint64(len(keys)); n++ {
		if on := n%uint64(len(addresses)) + 1; on != 1 {
			cluster.AddPeer(region+n, on, moved+n)
			cluster.ChangeLeader(region+n, moved+n)
			cluster.RemovePeer(region+n, peer+n)
		}
	}
}

func main() {
	stores := flag.String("stores", "", "addresses of all stores, with commas between")
	self := flag.Int("store", 0, "number of this store, from 1; 0: this is the PD server")
	address := flag.String("pd", "", "address of the PD server")
	path := flag.String("path", "", "directory of the data")
	seconds := flag.Int("seconds", 900, "how long the process lives")
	flag.Parse()
	client, cluster, placed, err := testutils.NewMockTiKV(*path, nil)
	if err != nil {
		panic(err)
	}
	addresses := strings.Split(*stores, ",")
	layOut(cluster, addresses)
	listen := *address
	// As TiKV is configured by default.
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.MaxSendMsgSize(10<<20))
	if *self == 0 {
		pdpb.RegisterPDServer(server, &placement{client: placed, addr: listen})
	} else {
		listen = addresses[*self-1]
		tikvpb.RegisterTikvServer(server, &store{client: client, addr: listen})
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		panic(err)
	}
	fmt.Println("up")
	go func() {
		time.Sleep(time.Duration(*seconds) * time.Second)
		os.Exit(0)
	}()
	panic(server.Serve(listener))
}
